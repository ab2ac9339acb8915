/** Commands to servers, over the connections of the application, and the meaning of errors. */
package dev.serverlock.internal.wire;
