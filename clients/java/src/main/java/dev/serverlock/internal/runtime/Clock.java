package dev.serverlock.internal.runtime;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A clock in nanoseconds that never goes back, and the waits that are measured on it. Production has
 * {@link SystemClock#SYSTEM}; an application's tests have one that they move. Thread-safe.
 */
public abstract class Clock {
    /** A time that never comes. */
    public static final long NEVER = Long.MAX_VALUE;

    public static final long MILLISECOND = 1_000_000;
    public static final long SECOND = 1_000 * MILLISECOND;

    public abstract long now();

    /** Waits until the signal is completed, for at most this long. Returns whether it is. */
    public abstract boolean await(CompletableFuture<?> signal, long span) throws InterruptedException;

    /** Completes the signal after this time, unless something completes it first. Returns it. */
    public abstract CompletableFuture<Void> completeAfter(CompletableFuture<Void> signal, long span);

    /** Returns the work as it must be run. The caller passes it on to another thread at once. */
    public abstract Runnable counted(Runnable work);

    /** The longest time for which a thread may wait when it has to notice that time has passed. */
    public abstract long longestSleep();

    /** Returns base + span, at most NEVER. */
    public static long after(long base, long span) {
        return span > Long.MAX_VALUE - base ? NEVER : base + span;
    }

    public static long nanos(Duration span) {
        try {
            return span.toNanos();
        } catch (ArithmeticException tooLong) {
            return span.isNegative() ? Long.MIN_VALUE : NEVER;
        }
    }

    /** Rounds to whole milliseconds, at least 1. */
    public static long milliseconds(long nanos) {
        return Math.max(1, nanos / MILLISECOND + (nanos % MILLISECOND >= MILLISECOND / 2 ? 1 : 0));
    }

    public static Duration duration(long nanos) {
        return Duration.ofNanos(Math.max(0, nanos));
    }
}
