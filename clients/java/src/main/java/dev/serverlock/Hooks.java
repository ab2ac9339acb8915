package dev.serverlock;

import java.time.Duration;
import java.util.List;

/**
 * Callbacks for locks that are granted, refused, lost and released. They must not block. By default they do nothing.
 */
public interface Hooks {
    /**
     * An attempt begins. The thread that asks for the lock calls this before it sends anything.
     *
     * @param keys the keys of the lock
     * @return follows this attempt, and the lock that it gets; null for nothing
     */
    default Watch began(List<String> keys) {
        return null;
    }

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

    /**
     * Follows one attempt and the lock that it gets. It hears of {@code granted} and then, once, of {@code ended}; or
     * of {@code failed} or {@code result} alone. Its methods must not block. By default they do nothing.
     */
    interface Watch {
        /**
         * The attempt got the lock.
         *
         * @param command the command that got it, or the function of the script
         * @param token the fencing token
         * @param waited the time from the call to the grant
         */
        default void granted(String command, long token, Duration waited) {}

        /**
         * The attempt did not get the lock.
         *
         * @param command the command that asked for it, or the function of the script
         * @param waited the time from the call to the end of the attempt
         * @param why the error that the caller gets: a {@link LockException}; after a cancellation, an
         *     {@link InterruptedException} or a {@link java.util.concurrent.CancellationException}
         */
        default void failed(String command, Duration waited, Exception why) {}

        /**
         * The attempt of a {@link SingleFlight} got another holder's result in place of the lock. The other hooks are
         * not called for it.
         *
         * @param command the command that asked for the lock, or the function of the script
         * @param waited the time from the call to the result
         */
        default void result(String command, Duration waited) {}

        /**
         * The lock is no longer held.
         *
         * @param end how it ended
         * @param held the time since the grant
         * @param why the loss; null unless the lock was lost
         */
        default void ended(End end, Duration held, LockLostException why) {}
    }

    /** How a lock ended. */
    enum End {
        /** It was released in time. */
        RELEASED,
        /** It was lost, or its release found that the grant had ended before. */
        LOST,
        /** The application forgot it without a release, so the lease is no longer renewed. */
        EXPIRED
    }

    /**
     * Combines hooks. An error in one of them does not keep the others from being called.
     *
     * @param all the hooks, called in this order
     * @return hooks that call all of them
     */
    static Hooks all(List<? extends Hooks> all) {
        return all.size() == 1 ? all.get(0) : new AllHooks(List.copyOf(all));
    }
}
