package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.testing.LockServer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

/** A watch hears of one attempt and its hold: of a grant and one end, or of a failure. */
class WatchTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private final List<String> heard = new CopyOnWriteArrayList<>();
    private final LockServer server = new LockServer();

    private final Hooks hooks = new Hooks() {
        @Override
        public Watch began(List<String> keys) {
            heard.add("began " + keys);
            return new Watch() {
                @Override
                public void granted(String command, long token, Duration waited) {
                    heard.add("granted " + command + " " + (token > 0) + " " + waited.toSeconds());
                }

                @Override
                public void failed(String command, Duration waited, Exception why) {
                    heard.add("failed " + command + " " + why.getClass().getSimpleName() + " " + waited.toSeconds());
                }

                @Override
                public void ended(End end, Duration held, LockLostException why) {
                    heard.add("ended " + end + " " + held.toSeconds() + (why == null ? "" : " " + why.code()));
                }
            };
        }
    };

    private Locks locks() {
        return Locks.builder(server.client()).hooks(hooks).build();
    }

    @Test
    void aReleasedLockEndsOnce() throws Exception {
        try (Locks locks = locks()) {
            Held held = locks.lock("report", LEASE).acquire();
            server.clock().advance(Duration.ofSeconds(7));
            held.release();
        }
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended RELEASED 7"), heard);
    }

    @Test
    void severalKeysAreNamedAndAnotherCommandGetsThem() throws Exception {
        try (Locks locks = locks()) {
            locks.allOf(List.of("a", "b"), LEASE).acquire().release();
        }
        assertEquals(List.of("began [a, b]", "granted LOCK.MACQUIRE true 0", "ended RELEASED 0"), heard);
    }

    @Test
    void aLossEndsTheLockAndItsReleaseDoesNotEndItAgain() throws Exception {
        try (Locks locks = locks()) {
            Held held = locks.lock("report", LEASE).acquire();
            server.lose(held);
            held.release();
            TestServer.until("the loss is reported", () -> heard.size() >= 3);
        }
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended LOST 0 lost"), heard);
    }

    @Test
    void aLockThatWasOverAtItsReleaseIsLost() throws Exception {
        try (Locks locks = locks()) {
            Held held = locks.lock("report", LEASE).acquire();
            server.expire("report");
            held.release();
        }
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended LOST 0 lost"), heard);
    }

    @Test
    void aFutureOfSuchAReleaseSaysTheSame() throws Exception {
        try (Locks locks = locks()) {
            Held held = locks.lock("report", LEASE).acquire();
            server.expire("report");
            held.releaseAsync()
                    .handle((done, error) -> null)
                    .toCompletableFuture()
                    .join();
        }
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended LOST 0 lost"), heard);
    }

    @Test
    void aLockThatNobodyReleasesExpires() throws Exception {
        try (Locks locks = locks()) {
            locks.lock("report", LEASE).acquire();
            TestServer.until("it is collected", () -> {
                System.gc();
                return heard.size() == 3;
            });
        }
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended EXPIRED 0"), heard);
    }

    @Test
    void anAttemptThatIsRefusedOrInterruptedFails() throws Exception {
        try (Locks locks = locks();
                Locks others = server.locks()) {
            Held held = others.lock("report", LEASE).acquire();
            ServerLock report = locks.lock("report", LEASE);
            assertThrows(LockRefusedException.class, report::acquire);
            Thread waiter = new Thread(() -> assertThrows(InterruptedException.class, report.waiting(LEASE)::acquire));
            waiter.start();
            TestServer.until("it waits", () -> server.waiting("report") == 1);
            waiter.interrupt();
            waiter.join();
            held.release();
        }
        assertEquals(
                List.of(
                        "began [report]",
                        "failed LOCK.ACQUIRE LockRefusedException 0",
                        "began [report]",
                        "failed LOCK.ACQUIRE InterruptedException 0"),
                heard);
    }

    @Test
    void aCancelledFutureFails() throws Exception {
        try (Locks locks = locks();
                Locks others = server.locks()) {
            Held held = others.lock("report", LEASE).acquire();
            CompletableFuture<Held> waiting =
                    locks.lock("report", LEASE).waiting(LEASE).acquireAsync();
            TestServer.until("it waits", () -> server.waiting("report") == 1);
            assertTrue(waiting.cancel(true));
            TestServer.until("the end is reported", () -> heard.size() == 2);
            held.release();
        }
        assertEquals(
                List.of("began [report]", "failed LOCK.ACQUIRE " + CancellationException.class.getSimpleName() + " 0"),
                heard);
    }

    @Test
    void anErrorInOneOfSeveralHooksDoesNotSilenceTheOthers() throws Exception {
        Hooks bad = new Hooks() {
            @Override
            public Watch began(List<String> keys) {
                throw new IllegalStateException("bad");
            }

            @Override
            public void granted(String key, Duration waited) {
                throw new NoClassDefFoundError("bad");
            }
        };
        List<String> counted = new CopyOnWriteArrayList<>();
        Hooks counting = new Hooks() {
            @Override
            public void granted(String key, Duration waited) {
                counted.add(key);
            }
        };
        System.Logger silent = System.getLogger("dev.serverlock.test.silent");
        Hooks all = Hooks.all(List.of(bad, hooks, counting));
        try (Locks locks =
                Locks.builder(server.client()).hooks(all).logger(silent).build()) {
            locks.lock("report", LEASE).acquire().release();
        }
        assertEquals(List.of("\"report\""), counted);
        assertEquals(List.of("began [report]", "granted LOCK.ACQUIRE true 0", "ended RELEASED 0"), heard);
    }
}
