package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.shedlock.ServerLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * The cases from ShedLock's AbstractExtensibleLockProviderIntegrationTest and its fuzz test, which are not published,
 * with its own LockingTaskExecutor.
 */
class ShedLockTest {
    private static final Duration LONG = Duration.ofMinutes(5);

    private static TestServer server;
    private static Locks locks;
    private static ServerLockProvider provider;

    private final String name = UUID.randomUUID().toString();

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        server.call("CONFIG", "SET", "lock.margin-ms", 100);
        locks = Locks.over(JedisServer.of(server.client));
        provider = new ServerLockProvider(locks);
    }

    @AfterAll
    static void end() throws Exception {
        locks.close();
        server.close();
    }

    private LockConfiguration configuration(Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), name, atMost, atLeast);
    }

    private SimpleLock lock(Duration atMost, Duration atLeast) {
        return provider.lock(configuration(atMost, atLeast)).orElseThrow();
    }

    private boolean isTaken() {
        return provider.lock(configuration(LONG, Duration.ZERO))
                .map(lock -> {
                    lock.unlock();
                    return false;
                })
                .orElse(true);
    }

    @Test
    void onlyOneHasTheLockAndItCanBeTakenRightAfterTheUnlock() {
        for (int turn = 0; turn < 10; turn++) {
            SimpleLock lock = lock(LONG, Duration.ZERO);
            assertEquals("held", server.info(name, "state"));
            assertTrue(isTaken());
            lock.unlock();
            assertTrue(server.isFree(name));
        }
    }

    @Test
    void itEndsAfterLockAtMostForAndIsNotRenewed() throws Exception {
        long began = System.nanoTime();
        SimpleLock forgotten = lock(Duration.ofMillis(600), Duration.ZERO);
        TestServer.until("it has ended", () -> !isTaken()); // a renewed lock never ends
        long took = (System.nanoTime() - began) / 1_000_000;
        assertTrue(took >= 600, () -> took + " ms");
        forgotten.unlock(); // ShedLock's own providers allow this too
    }

    @Test
    void lockAtLeastForKeepsOthersOutAfterTheUnlock() throws Exception {
        long began = System.nanoTime();
        lock(LONG, Duration.ofSeconds(2)).unlock();
        assertTrue(isTaken());
        TestServer.until("it is free", () -> !isTaken());
        assertTrue(System.nanoTime() - began >= 1_990_000_000L);
    }

    @Test
    void itCanBeExtendedMoreThanOnce() throws Exception {
        SimpleLock lock = lock(Duration.ofSeconds(1), Duration.ZERO);
        for (int turn = 0; turn < 3; turn++) {
            lock = lock.extend(LONG, Duration.ZERO).orElseThrow();
        }
        Thread.sleep(1200); // past its first lease, and the margin
        assertTrue(isTaken());
        lock.unlock();
        assertTrue(server.isFree(name));
    }

    @Test
    void anExtensionHasItsOwnLockAtLeastFor() {
        SimpleLock lock = lock(Duration.ofSeconds(10), Duration.ZERO);
        lock.extend(Duration.ofSeconds(10), Duration.ofSeconds(9)).orElseThrow().unlock();
        assertTrue(isTaken());
    }

    @Test
    void aLockThatHasEndedCannotBeExtended() throws Exception {
        SimpleLock lock = lock(Duration.ofMillis(2), Duration.ZERO);
        Thread.sleep(4);
        assertTrue(lock.extend(Duration.ofSeconds(10), Duration.ZERO).isEmpty());
    }

    @Test
    void aLockThatWasUnlockedOrExtendedIsNotValid() {
        SimpleLock unlocked = lock(LONG, Duration.ZERO);
        unlocked.unlock();
        assertThrows(IllegalStateException.class, unlocked::unlock);
        assertThrows(IllegalStateException.class, () -> unlocked.extend(LONG, Duration.ZERO));
        SimpleLock extended = lock(LONG, Duration.ZERO);
        SimpleLock next = extended.extend(LONG, Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, extended::unlock);
        assertThrows(IllegalStateException.class, () -> extended.extend(LONG, Duration.ZERO));
        next.unlock();
    }

    @Test
    void errorsAreShedLocksOwnAndNameTheLockAndTheReason() {
        server.call("LPUSH", name, "x");
        LockException error = assertThrows(LockException.class, () -> lock(LONG, Duration.ZERO));
        assertTrue(error.getMessage().contains(name) && error.getMessage().contains("WRONGTYPE"), error.getMessage());
    }

    @Test
    void operatorsSeePrefixAndOwner() {
        SimpleLock lock = provider.withPrefix("jobs:")
                .withOwner("host-7")
                .lock(configuration(LONG, Duration.ZERO))
                .orElseThrow();
        assertEquals("host-7", server.info("jobs:" + name, "owner"));
        lock.unlock();
    }

    @Test
    void withoutAnOwnerTheValueIsANumberForClassicClients() {
        SimpleLock lock = lock(LONG, Duration.ZERO);
        assertEquals("", server.info(name, "owner"));
        String value = server.client.get(name);
        assertTrue(value.matches("\\d{10}\\.\\d+"), value);
        lock.unlock();
    }

    @Test
    void eightThreadsNeverWorkAtTheSameTime() throws Exception {
        int[] counters = new int[2];
        LockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        ExecutorService threads = Executors.newFixedThreadPool(8);
        List<Future<?>> tasks = new ArrayList<>();
        for (int thread = 0; thread < 8; thread++) {
            int job = thread % 2;
            tasks.add(threads.submit(() -> {
                for (int[] done = {0}; done[0] < 25; ) {
                    executor.executeWithLock(
                            (Runnable) () -> {
                                int read = counters[job];
                                Thread.yield();
                                counters[job] = read + 1; // an update is lost if two threads work at once
                                done[0]++;
                            },
                            new LockConfiguration(Instant.now(), "job" + job + name, LONG, Duration.ofMillis(2)));
                }
            }));
        }
        for (Future<?> task : tasks) {
            task.get(120, TimeUnit.SECONDS);
        }
        threads.shutdown();
        assertEquals(100, counters[0]);
        assertEquals(100, counters[1]);
    }
}
