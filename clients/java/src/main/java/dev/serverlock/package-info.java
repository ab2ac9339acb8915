/**
 * Distributed locks for Redis and Valkey servers with the redis-lock module. Waiters queue in the server, each grant
 * has a fencing token, and a new holder can tell if its predecessor crashed.
 *
 * <p>Create one {@link dev.serverlock.Locks} for each Redis client in the application, with
 * {@link dev.serverlock.jedis.JedisServer} or {@link dev.serverlock.lettuce.LettuceServer}:
 *
 * <pre>{@code
 * try (Locks locks = Locks.over(JedisServer.of(client))) {
 *     ServerLock report = locks.lock("report", Duration.ofSeconds(30)).waiting(Duration.ofMinutes(1));
 *     try (Held held = report.acquire()) {
 *         write(held.token());
 *     }
 * }
 * }</pre>
 *
 * <p>A {@link dev.serverlock.ServerLock} is a description that any number of threads may use. Each acquisition returns
 * its own {@link dev.serverlock.Held}. The lease is renewed while the lock is held. Without a renewal, the holder
 * considers the lock lost a tenth of the lease plus the server's margin before anyone else can get it.
 *
 * <p>Where the module is not loaded, the same calls use a script, and locks are still granted in order of arrival.
 * Sessions, deadlock detection and observers of a leader need the module.
 */
package dev.serverlock;
