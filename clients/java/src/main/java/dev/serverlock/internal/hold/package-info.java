/** Held locks: renewal, loss, release, and what is left to give back. */
package dev.serverlock.internal.hold;
