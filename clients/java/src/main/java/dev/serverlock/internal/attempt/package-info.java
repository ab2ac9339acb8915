/** One attempt to acquire a lock, from the first request to the grant. */
package dev.serverlock.internal.attempt;
