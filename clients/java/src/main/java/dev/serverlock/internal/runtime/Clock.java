package dev.serverlock.internal.runtime;

import java.time.Duration;

/**
 * A clock in nanoseconds that keeps running while the machine is suspended and never goes back: the monotonic clock,
 * plus the time that the wall clock has gained on it. Java has no access to a system clock that does both. Thread-safe.
 *
 * <p>Setting the wall clock back changes nothing. Setting it forward looks like a suspend: a loss may be reported
 * early.
 */
public final class Clock {
    /** A time that never comes. */
    public static final long NEVER = Long.MAX_VALUE;

    public static final long MILLISECOND = 1_000_000;
    public static final long SECOND = 1_000 * MILLISECOND;

    /** Smaller differences are ignored, because two clocks cannot be read at the same moment. */
    private static final long SLACK = 20 * MILLISECOND;

    private static final int MOST_READINGS = 100;

    /** The system's clocks, in nanoseconds. */
    public interface Source {
        long monotonic();

        long wall();
    }

    public static final Clock SYSTEM = new Clock(new Source() {
        @Override
        public long monotonic() {
            return System.nanoTime();
        }

        @Override
        public long wall() {
            return System.currentTimeMillis() * MILLISECOND;
        }
    });

    private final Source source;
    private final long start;
    /** How far the wall clock is ahead of the monotonic one. */
    private volatile long skew;
    /** What the monotonic clock has missed. */
    private volatile long missed;

    public Clock(Source source) {
        this.source = source;
        start = source.monotonic();
        skew = source.wall() - start;
    }

    public long now() {
        long monotonic = source.monotonic();
        if (Math.abs(source.wall() - monotonic - skew) > SLACK) {
            compare();
        }
        return monotonic - start + missed;
    }

    /**
     * Reads the clocks again if the thread was stopped between two readings, because their difference is then
     * meaningless.
     */
    private synchronized void compare() {
        for (int tries = 0; tries < MOST_READINGS; tries++) {
            long monotonic = source.monotonic();
            long found = source.wall() - monotonic;
            if (source.monotonic() - monotonic < MILLISECOND) {
                if (Math.abs(found - skew) > SLACK) { // no other thread did it first
                    missed += Math.max(0, found - skew);
                    skew = found;
                }
                return;
            }
        }
    }

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
