/** Lets ShedLock use these locks. */
package dev.serverlock.shedlock;
