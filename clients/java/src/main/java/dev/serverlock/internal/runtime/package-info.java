/** Time, threads and log: what a manager needs from the JVM. */
package dev.serverlock.internal.runtime;
