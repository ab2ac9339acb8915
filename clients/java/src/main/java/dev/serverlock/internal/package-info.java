/** Puts the parts of one manager together. Each package here uses only those named before it in ArrowsTest. */
package dev.serverlock.internal;
