/** OpenTelemetry's traces and metrics of locks. */
package dev.serverlock.opentelemetry;
