/** Assembles the parts of one manager. Each package here uses only those that ArrowsTest names before it. */
package dev.serverlock.internal;
