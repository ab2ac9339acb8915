package dev.serverlock.internal.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The clock includes time during a suspend, and never goes back. */
class SystemClockTest {
    /** Clocks that the test moves. */
    private static final class Standing implements SystemClock.Source {
        long monotonic;
        long wall = 1_000_000 * Clock.SECOND;

        @Override
        public long monotonic() {
            return monotonic;
        }

        @Override
        public long wall() {
            return wall;
        }
    }

    @Test
    void itAddsWhatTheWallClockHasGained() {
        Standing source = new Standing();
        Clock clock = new SystemClock(source);
        source.monotonic += Clock.SECOND;
        source.wall += Clock.SECOND;
        assertEquals(Clock.SECOND, clock.now());
        source.wall += 60 * Clock.SECOND;
        assertEquals(61 * Clock.SECOND, clock.now());
        assertEquals(61 * Clock.SECOND, clock.now(), "once");
    }

    @Test
    void aWallClockThatIsSetBackChangesNothingAndASuspendAfterItCounts() {
        Standing source = new Standing();
        Clock clock = new SystemClock(source);
        source.wall -= 3600 * Clock.SECOND;
        assertEquals(0, clock.now());
        source.monotonic += Clock.SECOND;
        source.wall += Clock.SECOND;
        assertEquals(Clock.SECOND, clock.now());
        source.wall += 10 * Clock.SECOND;
        assertEquals(11 * Clock.SECOND, clock.now());
    }

    @Test
    void smallDifferencesDoNotAddUp() {
        Standing source = new Standing();
        Clock clock = new SystemClock(source);
        for (int turn = 0; turn < 10_000; turn++) {
            source.wall += (turn % 2 == 0 ? 15 : -15) * Clock.MILLISECOND;
            assertEquals(0, clock.now());
        }
    }

    @Test
    void aWaitEndsWithItsSignalOrItsTime() throws Exception {
        Clock clock = SystemClock.SYSTEM;
        CompletableFuture<Void> signal = new CompletableFuture<>();
        assertFalse(clock.await(signal, Clock.MILLISECOND));
        assertFalse(clock.await(signal, -1));
        clock.completeAfter(signal, Clock.MILLISECOND);
        assertTrue(clock.await(signal, Clock.NEVER));
        assertTrue(clock.await(CompletableFuture.failedFuture(new IllegalStateException()), Clock.SECOND));
    }
}
