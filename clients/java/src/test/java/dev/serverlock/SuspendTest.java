package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.SystemClock;
import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** The lease keeps counting while the machine is suspended. */
class SuspendTest {
    private static final Duration LEASE = Duration.ofMinutes(15);

    /** The system's clocks, with an offset. */
    private static final class Moved implements SystemClock.Source {
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

        /** All clocks count this time, except the monotonic one. */
        void suspend(long seconds) {
            wall.addAndGet(seconds * Clock.SECOND);
        }
    }

    @Test
    void aSuspendCountsTowardsTheLeaseAndStopsTheWork() throws Exception {
        Moved moved = new Moved();
        try (TestServer server = new TestServer()) {
            Locks.Builder options = Locks.builder(JedisServer.of(server.client));
            options.clock = new SystemClock(moved);
            try (Locks locks = options.build()) {
                CountDownLatch lost = new CountDownLatch(1);
                Held held =
                        locks.lock("a", LEASE).onLost(why -> lost.countDown()).acquire();
                assertThrows(
                        LockLostException.class,
                        () -> locks.lock("b", LEASE).run(other -> {
                            moved.suspend(850);
                            assertEquals(Duration.ZERO, held.left());
                            assertThrows(LockLostException.class, held::check);
                            Thread.sleep(600_000); // until the loss interrupts it
                        }));
                assertTrue(lost.await(60, TimeUnit.SECONDS));
            }
        }
    }

    @Test
    void aRenewalThatCameDueDuringASuspendIsSentAfterIt() throws Exception {
        Moved moved = new Moved();
        try (TestServer server = new TestServer()) {
            Locks.Builder options = Locks.builder(JedisServer.of(server.client));
            options.clock = new SystemClock(moved);
            try (Locks locks = options.build()) {
                Held held = locks.lock("a", LEASE).acquire();
                moved.suspend(400);
                assertTrue(held.left().toSeconds() <= 410, () -> "" + held.left());
                // By the monotonic clock the renewal would be due in five minutes.
                TestServer.until("its lease is full again", () -> held.left().toSeconds() > 700);
                assertTrue(held.release());
            }
        }
    }
}
