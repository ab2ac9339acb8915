package dev.serverlock.internal.once;

import dev.serverlock.internal.runtime.Clock;

/**
 * Numbers the ticks of a period on the server's clock. Times are in nanoseconds since the beginning of 1970.
 *
 * <p>A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
 * begins and ends half a period before and after the tick.
 */
final class Ticks {
    static final long LEAST_PERIOD = 10 * Clock.SECOND;
    /**
     * How much later than its window's end a kept lease may end: twice MOST_DOUBT, plus the time to reach the server.
     */
    static final long ORDINARY_DELAY = Clock.SECOND;

    private static final long LONGEST_DEFAULT = 10 * Clock.SECOND;

    private Ticks() {}

    /** The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended. */
    static long at(long serverNow, long period) {
        return Math.floorDiv(serverNow + period / 2, period);
    }

    static long windowBegins(long tick, long period) {
        return tick * period - period / 2;
    }

    static long windowEnds(long tick, long period) {
        return windowBegins(tick + 1, period);
    }

    /**
     * Whether a lease that expired then was that of a process that died within this window. The lease of a tick that
     * has run expires when its window ends, which is when the next window begins.
     */
    static boolean isRecovery(long expired, long tick, long period) {
        return expired > windowBegins(tick, period) + ORDINARY_DELAY;
    }

    /** Short enough that another process may still run the tick if one dies soon after the tick begins. */
    static long defaultLease(long period) {
        return Math.min(LONGEST_DEFAULT, period / 4);
    }
}
