package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** A server lock behind the JDK's interface. */
class LockViewTest {
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

    private static Lock lock(String key) {
        // A lease of "l" is short, because only its renewal discovers that the lock is gone.
        return locks.lock(key, key.equals("l") ? Duration.ofSeconds(9) : Duration.ofSeconds(30))
                .asLock();
    }

    @Test
    void itIsHeldBetweenLockAndUnlock() {
        Lock lock = lock("a");
        lock.lock();
        assertEquals("held", server.info("a", "state"));
        lock.unlock();
        assertTrue(server.isFree("a"));
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    @Test
    void anotherThreadWaitsForIt() throws Exception {
        Lock lock = lock("b");
        lock.lock();
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get(60, TimeUnit.SECONDS));
        CompletableFuture<Void> other = CompletableFuture.runAsync(() -> {
            lock.lock();
            lock.unlock();
        });
        TestServer.until(
                "the other thread waits", () -> server.info("b", "waiters").equals("1"));
        assertFalse(other.isDone());
        lock.unlock();
        other.get(60, TimeUnit.SECONDS);
    }

    @Test
    void theThreadThatHoldsItIsRefusedWithAnError() {
        Lock lock = lock("c");
        lock.lock();
        assertThrows(LockMisuseException.class, lock::lock);
        assertThrows(LockMisuseException.class, lock::tryLock);
        assertThrows(LockMisuseException.class, lock("c")::lock, "another view of the same lock");
        lock.unlock();
        lock.lock();
        lock.unlock();
    }

    @Test
    void unlockByAStrangerIsAnError() throws Exception {
        Lock lock = lock("d");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        lock.lock();
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Thread stranger = new Thread(lock::unlock);
        stranger.setUncaughtExceptionHandler((thread, error) -> thrown.set(error));
        stranger.start();
        stranger.join(10_000);
        assertTrue(thrown.get() instanceof IllegalMonitorStateException, () -> "" + thrown.get());
        assertEquals("held", server.info("d", "state"));
        lock.unlock();
    }

    @Test
    void unlockThrowsIfTheLockWasLost() {
        Lock lock = lock("e");
        lock.lock();
        server.call("DEL", "e");
        LockLostException error = assertThrows(LockLostException.class, lock::unlock);
        assertTrue(error.getMessage().contains("\"e\""), error.getMessage());
        lock.lock();
        lock.unlock();
    }

    @Test
    void aThreadWhoseLockWasLostMayTryAgain() throws Exception {
        Lock lock = lock("l");
        lock.lock();
        assertThrows(LockMisuseException.class, lock::tryLock, "while the lock is held");
        server.call("DEL", "l");
        Object theirs = server.call("LOCK.ACQUIRE", "l", "PX", 60_000);
        TestServer.until("the loss is noticed", () -> isRefused(lock));
        assertFalse(lock.tryLock());
        assertFalse(lock.tryLock(10, TimeUnit.MILLISECONDS));
        assertThrows(LockLostException.class, lock::unlock, "nothing was acquired in place of the lost lock");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        server.call("LOCK.RELEASE", "l", theirs);
        lock.lock();
        server.call("DEL", "l");
        TestServer.until("the thread has the lock again", () -> isGot(lock));
        lock.unlock();
        assertTrue(server.isFree("l"));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    private static boolean isGot(Lock lock) {
        try {
            return lock.tryLock();
        } catch (LockMisuseException stillHeld) {
            return false;
        }
    }

    private static boolean isRefused(Lock lock) {
        try {
            return !lock.tryLock();
        } catch (LockMisuseException stillHeld) {
            return false;
        }
    }

    @Test
    void aTimedTryEndsInTime() throws Exception {
        server.call("LOCK.ACQUIRE", "f", "PX", 60_000);
        long began = System.nanoTime();
        assertFalse(lock("f").tryLock(300, TimeUnit.MILLISECONDS));
        assertTrue(System.nanoTime() - began >= 290_000_000L);
        assertEquals("0", server.info("f", "waiters"));
    }

    @Test
    void lockIgnoresInterruptsAndLockInterruptiblyDoesNot() throws Exception {
        Object token = server.call("LOCK.ACQUIRE", "g", "PX", 60_000);
        CompletableFuture<Boolean> patient = new CompletableFuture<>();
        CompletableFuture<Throwable> other = new CompletableFuture<>();
        Thread waits = new Thread(() -> {
            Lock lock = lock("g");
            lock.lock();
            patient.complete(Thread.currentThread().isInterrupted());
            lock.unlock();
        });
        Thread givesUp = new Thread(() -> {
            try {
                lock("g").lockInterruptibly();
            } catch (InterruptedException error) {
                other.complete(error);
            }
        });
        waits.start();
        givesUp.start();
        TestServer.until("both wait", () -> server.info("g", "waiters").equals("2"));
        givesUp.interrupt();
        waits.interrupt();
        assertTrue(other.get(60, TimeUnit.SECONDS) instanceof InterruptedException);
        TestServer.until("one waits", () -> server.info("g", "waiters").equals("1"));
        server.call("LOCK.RELEASE", "g", token);
        assertTrue(patient.get(60, TimeUnit.SECONDS), "the interrupt is still pending");
    }

    @Test
    void thereAreNoConditions() {
        assertThrows(UnsupportedOperationException.class, lock("h")::newCondition);
    }
}
