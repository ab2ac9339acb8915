/** The manager's own connections, on which attempts wait. */
package dev.serverlock.internal.connection;
