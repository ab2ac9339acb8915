/** Time, threads, log and the process: what a manager needs from the JVM. */
package dev.serverlock.internal.runtime;
