/** Assembles the parts of one manager. Each package here uses only those named before it in ArrowsTest. */
package dev.serverlock.internal;
