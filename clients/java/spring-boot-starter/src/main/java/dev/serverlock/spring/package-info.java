/**
 * Locks for Spring Boot: a {@link dev.serverlock.Locks} bean on the server of {@code spring.data.redis}, and what
 * Spring Integration, ShedLock, Actuator and Micrometer get from it. Everything is configured by
 * {@link dev.serverlock.spring.ServerLockProperties}.
 */
package dev.serverlock.spring;
