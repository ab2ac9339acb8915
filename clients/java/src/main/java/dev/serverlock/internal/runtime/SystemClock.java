package dev.serverlock.internal.runtime;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A clock that keeps running while the machine is suspended: the monotonic clock, plus the time that the wall clock has
 * gained on it. Java has no access to a system clock that does both. Waits are measured by the system's timers, which
 * stop during a suspend.
 *
 * <p>Setting the wall clock back changes nothing. Setting it forward looks like a suspend: a loss may be reported
 * early.
 */
public final class SystemClock extends Clock {
    /** Smaller differences are ignored, because two clocks cannot be read at the same moment. */
    private static final long SLACK = 20 * MILLISECOND;

    private static final int MOST_READINGS = 100;

    /** The system's clocks, in nanoseconds. */
    public interface Source {
        long monotonic();

        long wall();
    }

    public static final Clock SYSTEM = new SystemClock(new Source() {
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

    public SystemClock(Source source) {
        this.source = source;
        start = source.monotonic();
        skew = source.wall() - start;
    }

    @Override
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

    @Override
    public boolean await(CompletableFuture<?> signal, long span) throws InterruptedException {
        try {
            signal.get(span, TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            return true;
        } catch (TimeoutException late) {
            return false;
        }
        return true;
    }

    @Override
    public CompletableFuture<Void> completeAfter(CompletableFuture<Void> signal, long span) {
        return signal.completeOnTimeout(null, span, TimeUnit.NANOSECONDS);
    }

    @Override
    public Runnable counted(Runnable work) {
        return work;
    }

    @Override
    public long longestSleep() {
        return SECOND;
    }
}
