package dev.serverlock;

import java.time.Duration;

/**
 * Callbacks for locks that are granted, refused, lost and released. They must not block. By default they do nothing.
 */
public interface Hooks {
    /**
     * An attempt got the lock.
     *
     * @param key the lock
     * @param waited the time from the call to the grant
     */
    default void granted(String key, Duration waited) {}

    /**
     * An attempt failed.
     *
     * @param key the lock
     * @param waited the time from the call to the error
     * @param why the error that the caller gets
     */
    default void refused(String key, Duration waited, LockException why) {}

    /**
     * A lock was lost.
     *
     * @param key the lock
     * @param held the time since the grant
     * @param why the reason
     */
    default void lost(String key, Duration held, LockLostException why) {}

    /**
     * A lock was released.
     *
     * @param key the lock
     * @param held the time since the grant
     * @param inTime whether it was held to the end
     */
    default void released(String key, Duration held, boolean inTime) {}
}
