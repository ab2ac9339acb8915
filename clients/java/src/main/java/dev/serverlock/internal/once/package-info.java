/** Ticks of a period, and the server's clock that decides them. */
package dev.serverlock.internal.once;
