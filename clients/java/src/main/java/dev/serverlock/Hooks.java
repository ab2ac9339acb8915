package dev.serverlock;

import java.time.Duration;

/** Callbacks for what happens to locks. They must not block. By default they do nothing. */
public interface Hooks {
    /**
     * An attempt got the lock.
     *
     * @param key the lock
     * @param waited how long that took
     */
    default void granted(String key, Duration waited) {}

    /**
     * An attempt failed.
     *
     * @param key the lock
     * @param waited how long that took
     * @param why the error that the caller gets
     */
    default void refused(String key, Duration waited, LockException why) {}

    /**
     * A lock was lost.
     *
     * @param key the lock
     * @param held how long it was held
     * @param why what happened
     */
    default void lost(String key, Duration held, LockLostException why) {}

    /**
     * A lock was given back.
     *
     * @param key the lock
     * @param held how long it was held
     * @param inTime whether it was held to the end
     */
    default void released(String key, Duration held, boolean inTime) {}
}
