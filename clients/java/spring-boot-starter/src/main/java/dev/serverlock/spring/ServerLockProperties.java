package dev.serverlock.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code serverlock.*}.
 *
 * @param enabled Whether to configure the locks.
 * @param timeout How long one reply may take.
 * @param missingModule The treatment of a server without the lock module.
 * @param lockRegistry The lock registry of Spring Integration.
 * @param shedlock The lock provider of ShedLock.
 */
@ConfigurationProperties("serverlock")
public record ServerLockProperties(
        @DefaultValue("true") boolean enabled,
        @DefaultValue("5s") Duration timeout,
        @DefaultValue("warn") MissingModule missingModule,
        @DefaultValue LockRegistry lockRegistry,
        @DefaultValue Shedlock shedlock) {

    /** The treatment of a server without the lock module. */
    public enum MissingModule {
        /** Locks work through a script, a warning is logged once, and the health is DOWN. */
        WARN,
        /** Attempts throw {@link dev.serverlock.LockUnavailableException}, and the health is DOWN. */
        REFUSE,
        /** Locks work through a script, and the health is UP. */
        ALLOW
    }

    /**
     * The lock registry of Spring Integration.
     *
     * @param enabled Whether there is a registry.
     * @param prefix What precedes the names of the registry's locks in their keys.
     * @param lease How long a crashed holder keeps a lock of the registry.
     */
    public record LockRegistry(
            @DefaultValue("true") boolean enabled,
            @DefaultValue("") String prefix,
            @DefaultValue("30s") Duration lease) {}

    /**
     * The lock provider of ShedLock.
     *
     * @param enabled Whether there is a provider.
     * @param prefix What precedes the names of ShedLock's locks in their keys.
     * @param owner A label that operators see; empty for none.
     */
    public record Shedlock(
            @DefaultValue("true") boolean enabled,
            @DefaultValue("") String prefix,
            @DefaultValue("") String owner) {}
}
