package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** A thread that asks again for the lock it holds, and gets it. */
class ReentrantTest {
    private static final Duration LONG = Duration.ofSeconds(30);

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

    private static ServerLock lock(String key) {
        return locks.lock(key, LONG).reentrant();
    }

    @Test
    void eachAcquisitionNeedsARelease() throws Exception {
        ServerLock lock = lock("a");
        Held held = lock.acquire();
        assertSame(held, lock.acquire());
        try (Held again = lock("a").acquire()) {
            assertSame(held, again, "another description of the same lock");
        }
        assertTrue(held.release());
        assertEquals("held", server.info("a", "state"));
        assertThrows(LockRefusedException.class, () -> inAnotherThread(lock));
        assertTrue(held.release());
        assertTrue(server.isFree("a"));
        assertThrows(LockMisuseException.class, held::release);
        Held next = lock.acquire();
        assertNotSame(held, next);
        assertTrue(next.release());
    }

    private static Held inAnotherThread(ServerLock lock) throws Exception {
        CompletableFuture<Held> other = new CompletableFuture<>();
        new Thread(() -> {
                    try {
                        other.complete(lock.acquire());
                    } catch (Throwable error) {
                        other.completeExceptionally(error);
                    }
                })
                .start();
        try {
            return other.get(60, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException error) {
            throw (Exception) error.getCause();
        }
    }

    @Test
    void theEndOfTheOutermostBodyReleasesTheLock() throws Exception {
        ServerLock lock = lock("b");
        Held[] kept = new Held[1];
        lock.run(held -> {
            lock.run(inner -> assertSame(held, inner));
            assertEquals("held", server.info("b", "state"));
            kept[0] = lock.acquire();
        });
        assertTrue(server.isFree("b"));
        assertThrows(LockLostException.class, kept[0]::check);
        assertThrows(LockMisuseException.class, kept[0]::release);
    }

    @Test
    void aBodyWithinAnAcquisitionReleasesNothing() throws Exception {
        Held held = lock("c").acquire();
        assertEquals(held.token(), lock("c").<Long, RuntimeException>call(Held::token));
        held.check();
        assertTrue(held.release());
    }

    @Test
    void onlyAReentrantRequestForTheSameLockGetsIt() throws Exception {
        locks.lock("d", LONG).run(held -> {
            assertSame(held, lock("d").acquire(), "the outer lock need not be reentrant");
            assertThrows(LockMisuseException.class, () -> locks.lock("d", LONG).acquire());
            assertThrows(
                    LockMisuseException.class,
                    () -> locks.shared("d", LONG).reentrant().acquire());
            assertThrows(
                    LockMisuseException.class,
                    () -> locks.allOf(List.of("d", "e"), LONG).reentrant().acquire());
            assertSame(held, locks.allOf(List.of("d"), LONG).reentrant().acquire());
        });
        assertTrue(server.isFree("d"));
        ServerLock pool = locks.limit("pool", 2, LONG).reentrant();
        Held place = pool.acquire();
        assertSame(place, pool.acquire());
        Held other = inAnotherThread(pool);
        assertNotSame(place, other, "the pool has a second place");
        assertTrue(other.release() && place.release() && place.release());
    }

    @Test
    void theThreadMayAcquireItAnewAfterAnotherOneReleasedIt() throws Exception {
        ServerLock lock = lock("f");
        Held held = lock.acquire();
        assertTrue(CompletableFuture.supplyAsync(held::release).get(60, TimeUnit.SECONDS));
        Held next = lock.acquire();
        assertTrue(next.token() > held.token());
        assertTrue(next.release());
    }

    @Test
    void anInterruptedThreadDoesNotGetItAgain() throws Exception {
        ServerLock lock = lock("g");
        Held held = lock.acquire();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::acquire);
        assertFalse(Thread.interrupted());
        assertTrue(held.release(), "it was acquired once");
        assertTrue(server.isFree("g"));
    }

    @Test
    void aLossStopsTheInnerBodyAndEveryScopeFails() throws Exception {
        ServerLock lock = locks.lock("h", Duration.ofMillis(900)).reentrant();
        LockLostException lost = assertThrows(
                LockLostException.class,
                () -> lock.run(held -> {
                    LockLostException inner = assertThrows(
                            LockLostException.class,
                            () -> lock.run(again -> {
                                server.call("DEL", "h");
                                Thread.sleep(60_000);
                            }));
                    assertTrue(inner.getCause() instanceof InterruptedException, inner.toString());
                    assertThrows(LockLostException.class, held::check);
                    Held anew = lock.acquire();
                    assertTrue(anew.token() > held.token());
                    assertTrue(anew.release());
                    throw inner;
                }));
        assertTrue(lost.getMessage().contains("\"h\""), lost.getMessage());
        assertFalse(Thread.interrupted());
    }

    @Test
    void nestedBlocksThatEndAfterALossThrow() throws Exception {
        LockLostException lost = assertThrows(LockLostException.class, () -> {
            try (Held outer = lock("i").acquire();
                    Held inner = lock("i").acquire()) {
                assertSame(outer, inner);
                server.call("DEL", "i");
                assertThrows(LockLostException.class, inner::verify);
            }
        });
        assertTrue(lost.getSuppressed()[0] instanceof LockLostException);
    }

    @Test
    void aBodyOfOnceDoesNotShareItsLock() throws Exception {
        Outcome outcome = locks.once("j", Duration.ofDays(1)).run(held -> {
            assertThrows(LockMisuseException.class, () -> lock("j").acquire());
            assertThrows(LockMisuseException.class, () -> lock("j").run(again -> {}));
        });
        assertEquals(Outcome.RAN, outcome);
        Held held = lock("k").acquire();
        assertThrows(
                LockMisuseException.class,
                () -> locks.once("k", Duration.ofDays(1)).run(never -> {}));
        assertTrue(held.release());
    }

    @Test
    void aDroppedHoldIsCollected() throws Exception {
        WeakReference<Held> dropped = new WeakReference<>(
                locks.lock("l", Duration.ofMillis(600)).reentrant().acquire());
        TestServer.until("nothing keeps the hold", () -> {
            System.gc();
            return dropped.get() == null;
        });
        assertNull(dropped.get());
        Held next = lock("l").waiting(LONG).acquire();
        assertTrue(next.release());
    }

    @Test
    void aClosedManagerRefuses() throws Exception {
        Locks closed = Locks.over(JedisServer.of(server.client));
        ServerLock lock = closed.lock("m", LONG).reentrant();
        Held held = lock.acquire();
        closed.close();
        assertThrows(LockMisuseException.class, lock::acquire);
        assertTrue(held.release());
    }

    @Test
    void aViewCountsItsLocksForEachThread() throws Exception {
        Lock lock = locks.lock("n", LONG).asReentrantLock();
        lock.lock();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock());
        Lock other = locks.lock("n", LONG).asReentrantLock();
        assertTrue(other.tryLock(1, TimeUnit.SECONDS), "another view of the same lock");
        other.unlock();
        assertThrows(IllegalMonitorStateException.class, other::unlock);
        lock.unlock();
        lock.unlock();
        assertEquals("held", server.info("n", "state"));
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get(60, TimeUnit.SECONDS));
        lock.unlock();
        assertTrue(server.isFree("n"));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void eachUnlockOfALostLockThrows() throws Exception {
        ServerLock described = locks.lock("o", Duration.ofSeconds(9));
        Lock lock = described.asReentrantLock();
        lock.lock();
        lock.lock();
        server.call("DEL", "o");
        assertThrows(LockLostException.class, described.reentrant().acquire()::verify);
        lock.lock();
        assertEquals("held", server.info("o", "state"));
        assertDoesNotThrow(lock::unlock);
        assertTrue(server.isFree("o"));
        assertThrows(LockLostException.class, lock::unlock);
        assertThrows(LockLostException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }
}
