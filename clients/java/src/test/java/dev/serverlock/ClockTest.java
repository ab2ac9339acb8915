package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** What a suspend of the machine, and a clock that is set, do to a lease. */
class ClockTest {
    private static final Duration LEASE = Duration.ofMinutes(15);

    /** The clocks of the system, moved. */
    private static final class Moved implements Clock.Source {
        final AtomicLong monotonic = new AtomicLong();
        final AtomicLong wall = new AtomicLong();

        @Override
        public long monotonic() {
            return System.nanoTime() + monotonic.get();
        }

        @Override
        public long wall() {
            return System.currentTimeMillis() * Clock.MILLISECOND + wall.get();
        }

        /** All clocks count that time, except for the monotonic one. */
        void suspend(long seconds) {
            wall.addAndGet(seconds * Clock.SECOND);
        }
    }

    /** A clock that does not go by itself. */
    private static final class Standing implements Clock.Source {
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
    void itCountsWhatTheWallClockHasGained() {
        Standing source = new Standing();
        Clock clock = new Clock(source);
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
        Clock clock = new Clock(source);
        source.wall -= 3600 * Clock.SECOND;
        assertEquals(0, clock.now());
        source.monotonic += Clock.SECOND;
        source.wall += Clock.SECOND;
        assertEquals(Clock.SECOND, clock.now());
        source.wall += 10 * Clock.SECOND;
        assertEquals(11 * Clock.SECOND, clock.now());
    }

    @Test
    void differencesOfAReadingDoNotAddUp() {
        Standing source = new Standing();
        Clock clock = new Clock(source);
        for (int turn = 0; turn < 10_000; turn++) {
            source.wall += (turn % 2 == 0 ? 15 : -15) * Clock.MILLISECOND;
            assertEquals(0, clock.now());
        }
    }

    @Test
    void aSuspendCountsTowardsTheLeaseAndStopsTheWork() throws Exception {
        Moved moved = new Moved();
        try (TestServer server = new TestServer()) {
            Locks.Builder options = Locks.builder(JedisServer.of(server.client));
            options.clock = new Clock(moved);
            try (Locks locks = options.build()) {
                CountDownLatch told = new CountDownLatch(1);
                Held held =
                        locks.lock("a", LEASE).onLost(why -> told.countDown()).acquire();
                assertThrows(
                        LockLostException.class,
                        () -> locks.lock("b", LEASE).run(other -> {
                            moved.suspend(850);
                            assertEquals(Duration.ZERO, held.left());
                            assertThrows(LockLostException.class, held::check);
                            Thread.sleep(100_000); // until the loss interrupts it
                        }));
                assertTrue(told.await(20, TimeUnit.SECONDS));
            }
        }
    }

    @Test
    void aRenewalThatCameDueInASuspendIsSentAfterIt() throws Exception {
        Moved moved = new Moved();
        try (TestServer server = new TestServer()) {
            Locks.Builder options = Locks.builder(JedisServer.of(server.client));
            options.clock = new Clock(moved);
            try (Locks locks = options.build()) {
                Held held = locks.lock("a", LEASE).acquire();
                moved.suspend(400);
                assertTrue(held.left().toSeconds() <= 410, () -> "" + held.left());
                // By the monotonic clock it would be due in five minutes.
                TestServer.until("its lease is whole again", () -> held.left().toSeconds() > 700);
                assertTrue(held.release());
            }
        }
    }
}
