/** Commands to servers over the application's connections, and the meaning of errors. */
package dev.serverlock.internal.wire;
