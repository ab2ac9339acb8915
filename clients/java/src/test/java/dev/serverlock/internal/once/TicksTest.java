package dev.serverlock.internal.once;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.serverlock.internal.runtime.Clock;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Moments belong to the right tick, and its lease ends in time. */
class TicksTest {
    private static final long SECOND = Clock.SECOND;
    private static final long MILLISECOND = Clock.MILLISECOND;
    /** A tick of each of the periods. */
    private static final long START = 1_799_971_200 * SECOND;

    private static final long[] PERIODS = {
        10 * SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND, 12_500 * MILLISECOND
    };

    private record Shifted(double periods, int tick) {}

    @Test
    void aTickIsTheNearestBeginning() {
        Shifted[] all = {
            new Shifted(-0.5, 0),
            new Shifted(-0.499, 0),
            new Shifted(0, 0),
            new Shifted(0.4, 0),
            new Shifted(-0.4, 0),
            new Shifted(0.499, 0),
            new Shifted(0.5, 1),
            new Shifted(-0.501, -1)
        };
        for (long period : PERIODS) {
            long tick = START / period;
            assertEquals(START, tick * period);
            for (Shifted one : all) {
                long at = START + Math.round(one.periods * period);
                assertEquals(tick + one.tick, Ticks.at(at, period), one + " of " + period);
            }
        }
    }

    @Test
    void halfWayBelongsToTheLaterTickWhetherItIsOddOrEven() {
        long period = 10 * SECOND;
        for (long tick : new long[] {180_000_000, 180_000_001}) {
            long end = Ticks.windowEnds(tick, period);
            assertEquals(tick + 1, Ticks.at(end, period));
            assertEquals(tick, Ticks.at(end - 1, period));
            assertEquals(tick, Ticks.at(Ticks.windowBegins(tick, period), period));
        }
    }

    @Test
    void windowsFollowEachOther() {
        for (long odd = 0; odd < 2; odd++) {
            for (long even : PERIODS) {
                long period = even + odd;
                for (long tick : new long[] {7, 8}) {
                    long begin = Ticks.windowBegins(tick, period);
                    long end = Ticks.windowEnds(tick, period);
                    assertEquals(period, end - begin);
                    assertEquals(tick, Ticks.at(begin, period));
                    assertEquals(tick, Ticks.at(end - 1, period));
                    assertEquals(tick + 1, Ticks.at(end, period));
                }
            }
        }
    }

    @Test
    void theOrdinaryEndOfTheLastTickIsNotACrash() {
        for (long period : PERIODS) {
            long tick = START / period;
            long begins = START - period / 2;
            Map<Long, Boolean> crashes = Map.of(
                    begins - period,
                    false,
                    begins,
                    false,
                    begins + 600 * MILLISECOND,
                    false,
                    begins + Ticks.ORDINARY_DELAY,
                    false,
                    begins + Ticks.ORDINARY_DELAY + 10 * MILLISECOND,
                    true,
                    START,
                    true);
            crashes.forEach((expired, isCrash) ->
                    assertEquals(isCrash, Ticks.isRecovery(expired, tick, period), expired - begins + " of " + period));
        }
    }

    @Test
    void theDefaultLeaseLeavesTimeToRunTheTickAgain() {
        assertEquals(2500 * MILLISECOND, Ticks.defaultLease(10 * SECOND));
        assertEquals(10 * SECOND, Ticks.defaultLease(40 * SECOND));
        assertEquals(10 * SECOND, Ticks.defaultLease(3600 * SECOND));
    }

    @Test
    void theLeaseEndsAMarginBeforeHalfWayOnTheLocalClock() {
        // Never earlier than it should, and later by less than ORDINARY_DELAY.
        Map<Long, Long> later = Map.of(
                0L,
                0L,
                100 * MILLISECOND,
                100 * MILLISECOND,
                250 * MILLISECOND,
                250 * MILLISECOND,
                5 * SECOND,
                250 * MILLISECOND);
        later.forEach((doubt, late) -> {
            Estimate estimate = new Estimate(1_799_999_000 * SECOND, doubt, 0);
            Run run = new Run(180_000_000, 10 * SECOND, estimate, 1500 * MILLISECOND, false, false);
            assertEquals(1000 * SECOND + 5 * SECOND - 1500 * MILLISECOND + late, run.leaseEnds());
        });
    }
}
