/**
 * For the tests of an application: a lock server in memory, whose clock the test moves. Start with
 * {@link dev.serverlock.testing.LockServer}.
 */
package dev.serverlock.testing;
