/** Held locks: renewal, loss, release, and background debts. */
package dev.serverlock.internal.hold;
