package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

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
    void theEndOfTheBlockReleases() throws Exception {
        try (Held held = lock("a", LONG).acquire()) {
            held.check();
            assertEquals("held", server.info("a", "state"));
        }
        assertTrue(server.isFree("a"));
        try (Held held = lock("a", LONG).acquire()) {
            assertTrue(held.release());
        } // releasing early is no error
    }

    @Test
    void theEndOfTheBlockTellsOfALoss() {
        assertThrows(LockLostException.class, () -> {
            try (Held held = lock("b", LONG).acquire()) {
                server.call("DEL", "b");
                held.check();
            }
        });
        IOException work = new IOException("the work failed");
        IOException told = assertThrows(IOException.class, () -> {
            try (Held held = lock("b", LONG).acquire()) {
                server.call("DEL", "b");
                held.left();
                throw work;
            }
        });
        assertSame(work, told);
        assertTrue(told.getSuppressed()[0] instanceof LockLostException);
    }

    @Test
    void aLossInterruptsTheWorkAndNothingElse() throws Exception {
        ServerLock lock = lock("c", SHORT);
        long began = System.nanoTime();
        LockLostException told = assertThrows(LockLostException.class, () -> lock.run(held -> {
            server.call("DEL", "c");
            Thread.sleep(20_000);
        }));
        assertTrue(told.getMessage().contains("\"c\""), told.getMessage());
        assertThrows(LockLostException.class, () -> lock.run(held -> {
            server.call("DEL", "c");
            long end = System.nanoTime() + 20_000_000_000L;
            while (!Thread.currentThread().isInterrupted() && System.nanoTime() < end) {
                Thread.onSpinWait(); // work that looks at the flag, and leaves it
            }
        }));
        assertTrue(System.nanoTime() - began < 15_000_000_000L, "the work was not interrupted");
        assertFalse(Thread.currentThread().isInterrupted());
        assertEquals("done", lock.call(held -> "done"));
    }

    @Test
    void anInterruptOfSomebodyElseIsToldAsSuch() {
        Thread me = Thread.currentThread();
        assertThrows(InterruptedException.class, () -> lock("d", LONG).run(held -> {
            me.interrupt();
            Thread.sleep(20_000);
        }));
        assertTrue(server.isFree("d"), "it was released all the same");
    }

    @Test
    void aLockWithinItsOwnScopeIsAnErrorAndInAnotherThreadIsNot() throws Exception {
        ServerLock lock = lock("e", LONG);
        lock.run(held -> {
            assertThrows(LockMisuseException.class, lock::acquire);
            assertThrows(LockMisuseException.class, () -> locks.shared("e", LONG).acquire());
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
        assertTrue(lock("h", LONG).acquire().release(Duration.ofMillis(500)));
        assertEquals("held", server.info("h", "state"));
        TestServer.until("it is free", () -> server.isFree("h"));
        assertTrue(System.nanoTime() - began >= 490_000_000L);
    }

    @Test
    void aHookThatFailsCostsNoLock() throws Exception {
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
        try (Locks hooked = Locks.builder(JedisServer.of(server.client)).hooks(bad).build()) {
            assertTrue(hooked.lock("j", LONG).acquire().release());
        }
        assertTrue(server.isFree("j"));
    }

    @Test
    void noThreadOutlivesAManagerWithoutLocks() throws Exception {
        TestServer.until("idle threads have ended", () -> timers() <= 1); // that of the other tests
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
                .filter(thread -> thread.getName().equals("serverlock-timer")).count();
    }

    @Test
    void aHoldThatIsDroppedIsCollected() throws Exception {
        WeakReference<Held> dropped = new WeakReference<>(lock("i", SHORT).acquire());
        TestServer.until("nobody keeps it", () -> {
            System.gc();
            return dropped.get() == null;
        });
        assertNull(dropped.get());
        TestServer.until("others can have it", () -> server.call("LOCK.ACQUIRE", "i", "PX", 1000) != null);
    }
}
