package dev.serverlock;

import java.time.Duration;

/** A clock that is never set, in nanoseconds. */
final class Clock {
    /** A time that never comes. */
    static final long NEVER = Long.MAX_VALUE;

    static final long MILLISECOND = 1_000_000;
    static final long SECOND = 1_000 * MILLISECOND;

    private static final long START = System.nanoTime();

    private Clock() {}

    static long now() {
        return System.nanoTime() - START;
    }

    /** base + span, or the end of time. */
    static long after(long base, long span) {
        return span > Long.MAX_VALUE - base ? NEVER : base + span;
    }

    static long nanos(Duration span) {
        try {
            return span.toNanos();
        } catch (ArithmeticException tooLong) {
            return span.isNegative() ? Long.MIN_VALUE : NEVER;
        }
    }

    /** In whole milliseconds, but never nothing. */
    static long milliseconds(long nanos) {
        return Math.max(1, nanos / MILLISECOND + (nanos % MILLISECOND >= MILLISECOND / 2 ? 1 : 0));
    }

    static Duration duration(long nanos) {
        return Duration.ofNanos(Math.max(0, nanos));
    }
}
