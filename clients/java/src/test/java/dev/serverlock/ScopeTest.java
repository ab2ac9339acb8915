package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.spi.FakeServer;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;

/** Work under a lock: try-with-resources, run and call. */
class ScopeTest {
    private static TestServer server;
    private static Locks locks;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        locks = Locks.over(JedisServer.of(server.client));
    }

    @AfterAll
    static void end() throws Exception {
        locks.close();
        server.close();
    }

    private static ServerLock lock(String key, Duration lease) {
        return locks.lock(key, lease);
    }

    private static final Duration LONG = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofMillis(600);

    @Test
    void leavingTheBlockReleases() throws Exception {
        try (Held held = lock("a", LONG).acquire()) {
            held.check();
            assertEquals("held", server.info("a", "state"));
        }
        assertTrue(server.isFree("a"));
        try (Held held = lock("a", LONG).acquire()) {
            assertTrue(held.release());
        } // releasing early is allowed
    }

    @Test
    void leavingTheBlockThrowsAfterALoss() {
        assertThrows(LockLostException.class, () -> {
            try (Held held = lock("b", LONG).acquire()) {
                server.call("DEL", "b");
                held.check();
            }
        });
        IOException work = new IOException("the work failed");
        IOException thrown = assertThrows(IOException.class, () -> {
            try (Held held = lock("b", LONG).acquire()) {
                server.call("DEL", "b");
                held.left();
                throw work;
            }
        });
        assertSame(work, thrown);
        assertTrue(thrown.getSuppressed()[0] instanceof LockLostException);
    }

    @Test
    void aLossInterruptsTheWorkAndNothingElse() throws Exception {
        ServerLock lock = lock("c", SHORT);
        AtomicInteger interrupts = new AtomicInteger();
        LockLostException lost = assertThrows(
                LockLostException.class,
                () -> lock.run(held -> {
                    server.call("DEL", "c");
                    try {
                        Thread.sleep(60_000);
                    } catch (InterruptedException error) {
                        interrupts.incrementAndGet();
                        throw error;
                    }
                }));
        assertTrue(lost.getMessage().contains("\"c\""), lost.getMessage());
        assertThrows(
                LockLostException.class,
                () -> lock.run(held -> {
                    server.call("DEL", "c");
                    long end = System.nanoTime() + 60_000_000_000L;
                    while (!Thread.currentThread().isInterrupted() && System.nanoTime() < end) {
                        LockSupport.parkNanos(1_000_000); // work that checks the flag without clearing it
                    }
                    interrupts.addAndGet(Thread.currentThread().isInterrupted() ? 1 : 0);
                }));
        assertEquals(2, interrupts.get());
        assertFalse(Thread.currentThread().isInterrupted());
        assertEquals("done", lock("c", LONG).call(held -> "done"));
    }

    @Test
    void anInterruptFromOutsideIsThrownAsSuch() {
        Thread me = Thread.currentThread();
        assertThrows(
                InterruptedException.class,
                () -> lock("d", LONG).run(held -> {
                    me.interrupt();
                    Thread.sleep(60_000);
                }));
        assertTrue(server.isFree("d"), "the lock was still released");
    }

    @Test
    void onlyTheSameLockWithinItsOwnScopeIsAnError() throws Exception {
        ServerLock lock = lock("e", LONG);
        lock.run(held -> {
            assertThrows(LockMisuseException.class, lock::acquire);
            assertThrows(
                    LockMisuseException.class, () -> locks.shared("e", LONG).acquire());
            lock("f", LONG).run(other -> other.check());
        });
        lock.acquire().release();
    }

    @Test
    void anInterruptedThreadStillReleases() throws Exception {
        Held held = lock("g", LONG).acquire();
        Thread.currentThread().interrupt();
        assertTrue(held.release());
        assertTrue(Thread.interrupted());
        assertTrue(server.isFree("g"));
    }

    @Test
    void aLaterReleaseKeepsOthersOutAndReturnsAtOnce() throws Exception {
        long began = System.nanoTime();
        assertTrue(lock("h", LONG).acquire().release(Duration.ofSeconds(3)));
        assertEquals("held", server.info("h", "state"));
        TestServer.until("it is free", () -> server.isFree("h"));
        assertTrue(System.nanoTime() - began >= 2_990_000_000L);
    }

    @Test
    void aScopeAppliesOnlyWhileItsHoldIsHeldAndReleasesOnlyThatHold() throws Exception {
        ServerLock lock = lock("s", LONG);
        lock.run(held -> {
            assertTrue(held.release());
            Held again = lock.acquire();
            assertTrue(again.token() > held.token());
            again.release();
        });
        Held[] second = new Held[1];
        assertThrows(
                LockLostException.class,
                () -> lock.run(held -> {
                    server.call("DEL", "s");
                    assertThrows(LockLostException.class, held::verify);
                    Thread.interrupted(); // clears the interrupt that the loss caused
                    second[0] = lock.acquire();
                }));
        second[0].check();
        assertEquals("" + second[0].token(), server.info("s", "token"));
        assertTrue(second[0].release());
    }

    /** The scenarios of clients/suite cover an attempt that is polling when the module is loaded. */
    @Test
    void aMissingModuleCausesOneWarning() throws Exception {
        for (boolean warns : new boolean[] {true, false}) {
            AtomicInteger warnings = new AtomicInteger();
            System.Logger log = new Counting(warnings);
            try (FakeServer without = new FakeServer(command -> "-ERR unknown command\r\n");
                    RedisClient client = RedisClient.create("127.0.0.1", without.port());
                    Locks bare = Locks.builder(JedisServer.of(client))
                            .logger(log)
                            .warnWithoutModule(warns)
                            .build()) {
                for (int turn = 0; turn < 3; turn++) {
                    assertThrows(
                            LockException.class, () -> bare.shared("a", LONG).acquire());
                }
            }
            assertEquals(warns ? 1 : 0, warnings.get());
        }
    }

    /** Counts the warnings about a missing module. */
    private record Counting(AtomicInteger warnings) implements System.Logger {
        @Override
        public String getName() {
            return "counting";
        }

        @Override
        public boolean isLoggable(Level level) {
            return true;
        }

        @Override
        public void log(Level level, java.util.ResourceBundle bundle, String text, Throwable thrown) {
            warnings.addAndGet(text.contains("does not have the lock module") ? 1 : 0);
        }

        @Override
        public void log(Level level, java.util.ResourceBundle bundle, String format, Object... params) {
            log(level, bundle, format, (Throwable) null);
        }
    }

    @Test
    void aFailingHookDoesNotLoseTheLock() throws Exception {
        Hooks bad = new Hooks() {
            @Override
            public void granted(String key, Duration waited) {
                throw new NoClassDefFoundError("a library of the hook");
            }

            @Override
            public void released(String key, Duration held, boolean inTime) {
                throw new IllegalStateException("released");
            }
        };
        try (Locks hooked =
                Locks.builder(JedisServer.of(server.client)).hooks(bad).build()) {
            assertTrue(hooked.lock("j", LONG).acquire().release());
        }
        assertTrue(server.isFree("j"));
    }

    @Test
    void noThreadOutlivesAManagerWithoutLocks() throws Exception {
        TestServer.until("idle threads have ended", () -> timers() <= 1); // the shared manager's thread
        for (int turn = 0; turn < 3; turn++) {
            Locks made = Locks.over(JedisServer.of(server.client));
            Held held = made.lock("k", LONG).acquire();
            made.close();
            assertTrue(held.release());
        }
        TestServer.until("their threads have ended", () -> timers() <= 1);
    }

    private static long timers() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("serverlock-timer"))
                .count();
    }

    @Test
    void aDroppedHoldIsCollected() throws Exception {
        WeakReference<Held> dropped = new WeakReference<>(lock("i", SHORT).acquire());
        TestServer.until("nothing keeps the hold", () -> {
            System.gc();
            return dropped.get() == null;
        });
        assertNull(dropped.get());
        TestServer.until("others can have it", () -> server.call("LOCK.ACQUIRE", "i", "PX", 1000) != null);
    }
}
