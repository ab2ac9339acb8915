package dev.serverlock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.Held;
import dev.serverlock.Leader;
import dev.serverlock.LockArgumentException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.Locks;
import dev.serverlock.Outcome;
import dev.serverlock.Predecessor;
import dev.serverlock.ServerLock;
import dev.serverlock.TestServer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The server in memory, as an application's tests use it. */
class LockServerTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration LONG = Duration.ofHours(1);

    private final LockServer server = new LockServer();
    private final List<Locks> all = new ArrayList<>();
    private final Locks locks = process();
    private final Locks others = process();
    /** What happened, in its order. */
    private final List<String> seen = Collections.synchronizedList(new ArrayList<>());

    @AfterEach
    void close() {
        all.forEach(Locks::close);
        server.clock().advance(LONG.plus(LONG)); // the holds end, and the threads with them
    }

    private Locks process() {
        Locks made = server.locks();
        all.add(made);
        return made;
    }

    private static <T> FutureTask<T> start(Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        Thread thread = new Thread(task, "caller");
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    /** Acquires in a thread. Returns once this many attempts are in the queue of the key. */
    private FutureTask<Held> waiting(String key, int count, ServerLock lock) throws InterruptedException {
        FutureTask<Held> task = start(lock::acquire);
        queued(key, count);
        return task;
    }

    private void queued(String key, int count) throws InterruptedException {
        TestServer.until(count + " wait for " + key, () -> server.waiting(key) == count);
    }

    private static <X extends Throwable> X failure(Class<X> type, FutureTask<?> task) {
        return assertInstanceOf(
                type, assertThrows(ExecutionException.class, task::get).getCause());
    }

    private void advance(int seconds) {
        server.clock().advance(Duration.ofSeconds(seconds));
    }

    @Test
    void managersOfOneServerExcludeEachOther() throws Exception {
        long first = locks.lock("report", LEASE).call(held -> {
            assertThrows(
                    LockMisuseException.class, () -> locks.lock("report", LEASE).acquire());
            assertThrows(
                    LockRefusedException.class,
                    () -> others.lock("report", LEASE).acquire());
            return held.token();
        });
        Held held = others.lock("report", LEASE).acquire();
        assertTrue(held.token() > first);
        try (Locks elsewhere = new LockServer().locks()) {
            assertTrue(elsewhere.lock("report", LEASE).acquire().release());
        }
        assertThrows(LockArgumentException.class, () -> locks.lock("report", Duration.ZERO));
        assertTrue(held.release());
        assertThrows(LockMisuseException.class, held::release);
        locks.close();
        assertThrows(
                LockMisuseException.class, () -> locks.lock("report", LEASE).acquire());
    }

    @Test
    void itsClientsHaveTheOptionsOfABuilder() throws Exception {
        try (Locks built = Locks.builder(server.client()).withoutScripts().build()) {
            Held held = built.lock("report", LEASE).acquire();
            assertThrows(
                    LockRefusedException.class,
                    () -> locks.lock("report", LEASE).acquire());
            assertTrue(held.release());
        }
    }

    @Test
    void waitersGetTheLockInTheOrderOfTheirArrival() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        List<FutureTask<Held>> waiters = new ArrayList<>();
        for (int number = 1; number <= 4; number++) {
            Locks mine = number < 3 ? others : process();
            waiters.add(waiting("report", number, mine.lock("report", LEASE).waiting(LONG)));
        }
        long token = held.token();
        assertTrue(held.release());
        for (FutureTask<Held> waiter : waiters) {
            Held next = waiter.get();
            assertTrue(next.token() > token);
            token = next.token();
            assertTrue(next.release());
        }
    }

    @Test
    void aWriterWaitsForReadersAndALimitCountsHolders() throws Exception {
        List<Held> readers = List.of(
                locks.shared("page", LEASE).acquire(),
                others.shared("page", LEASE).acquire());
        FutureTask<Held> writer = waiting("page", 1, others.lock("page", LEASE).waiting(LONG));
        FutureTask<Held> reader = waiting("page", 2, locks.shared("page", LEASE).waiting(LONG));
        readers.forEach(Held::release);
        Held written = writer.get();
        assertThrows(
                LockRefusedException.class, () -> others.shared("page", LEASE).acquire());
        assertFalse(reader.isDone());
        assertTrue(written.release());
        assertTrue(reader.get().release());
        Held held = locks.limit("pool", 2, LEASE).acquire();
        others.limit("pool", 2, LEASE).acquire();
        assertThrows(
                LockRefusedException.class, () -> locks.limit("pool", 2, LEASE).acquire());
        FutureTask<Held> third =
                waiting("pool", 1, others.limit("pool", 2, LEASE).waiting(LONG));
        assertTrue(held.release());
        assertTrue(third.get().release());
    }

    @Test
    void anAttemptForSeveralKeysWaitsForEachOfThem() throws Exception {
        Held a = locks.lock("a", LEASE).acquire();
        Held b = locks.lock("b", LEASE).acquire();
        FutureTask<Held> both =
                waiting("a", 1, others.allOf(List.of("a", "b"), LEASE).waiting(LONG));
        assertTrue(a.release());
        queued("b", 1);
        assertTrue(b.release());
        Held held = both.get();
        assertThrows(LockRefusedException.class, () -> locks.lock("a", LEASE).acquire());
        assertEquals(LEASE.multipliedBy(9).dividedBy(10), held.verify());
        held.extend(LONG);
        assertTrue(held.release());
        assertTrue(locks.lock("b", LEASE).acquire().release());
    }

    @Test
    void timeStandsStillUntilItIsMoved() throws Exception {
        Instant before = server.clock().now();
        Held held = locks.lock("report", LEASE).acquire();
        assertEquals(Duration.ofSeconds(27), held.left());
        advance(1);
        assertEquals(Duration.ofSeconds(26), held.left());
        assertEquals(
                Duration.ofSeconds(1), Duration.between(before, server.clock().now()));
        assertThrows(IllegalArgumentException.class, () -> advance(-1));
    }

    @Test
    void locksAreRenewedForMaxHoldAtMost() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        Held bounded = locks.lock("bounded", LEASE)
                .maxHold(Duration.ofSeconds(40))
                .onLost(why -> seen.add("lost"))
                .acquire();
        advance(50);
        assertEquals(List.of(), seen);
        advance(20);
        assertEquals(List.of("lost"), seen);
        assertThrows(LockLostException.class, bounded::check);
        advance(3600);
        held.check();
        assertTrue(held.release());
        assertFalse(bounded.release());
    }

    @Test
    void waitsEndInTheOrderOfTheirTime() throws Exception {
        locks.lock("report", LEASE).acquire();
        int count = 0;
        for (int seconds : new int[] {7, 3, 5}) {
            ServerLock lock = others.lock("report", LEASE).waiting(Duration.ofSeconds(seconds));
            start(() -> assertThrows(LockTimeoutException.class, () -> {
                try {
                    lock.acquire();
                } finally {
                    seen.add("" + seconds);
                }
            }));
            queued("report", ++count);
        }
        advance(3);
        assertEquals(List.of("3"), seen);
        advance(60);
        assertEquals(List.of("3", "5", "7"), seen);
        assertEquals(0, server.waiting("report"));
    }

    @Test
    void aWaiterGetsALockThatExpiresAndRenewsItsOwn() throws Exception {
        ServerLock lock = others.lock("report", LEASE).waiting(LONG).details();
        for (int millis : new int[] {3123, 4567}) {
            Duration lease = Duration.ofMillis(millis);
            locks.lock("report", lease).maxHold(Duration.ofNanos(1)).acquire();
            FutureTask<Held> waiter = waiting("report", 1, lock);
            FutureTask<Held> next = waiting("report", 2, lock);
            advance(1000);
            Held held = waiter.get();
            held.check();
            assertEquals(Duration.ZERO, held.predecessor().orElseThrow().overdue());
            assertTrue(held.release());
            assertTrue(next.get().release());
        }
    }

    @Test
    void anExpiredLockIsPassedOnAndItsHolderLearnsThatWithItsRenewal() throws Exception {
        Held held = locks.lock("report", LEASE)
                .owner("alice")
                .onLost(why -> seen.add("lost"))
                .acquire();
        FutureTask<Held> waiter =
                waiting("report", 1, others.lock("report", LEASE).waiting(LONG).details());
        server.expire("report");
        Predecessor before = waiter.get().predecessor().orElseThrow();
        assertEquals("alice", before.owner());
        assertEquals(held.token(), before.token());
        held.check();
        advance(9);
        assertEquals(List.of(), seen);
        advance(1);
        assertEquals(List.of("lost"), seen);
        assertFalse(held.release());
    }

    @Test
    void onlyAnExpiredLockCanBeRecovered() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        assertThrows(
                LockRefusedException.class,
                () -> others.recover("report", LEASE).acquire());
        server.expire("report");
        assertThrows(LockLostException.class, held::verify);
        Held recovered = others.recover("report", LEASE).acquire();
        assertEquals(held.token(), recovered.predecessor().orElseThrow().token());
        assertTrue(recovered.release());
        LockRefusedException refused = assertThrows(
                LockRefusedException.class,
                () -> others.recover("report", LEASE).acquire());
        assertTrue(refused.getMessage().contains("is free"), refused.getMessage());
    }

    @Test
    void aLostHoldIsReportedAtOnceAndItsKeysAreFree() throws Exception {
        Held held = locks.allOf(List.of("a", "b"), LEASE)
                .onLost(why -> seen.add("lost"))
                .acquire();
        FutureTask<Held> waiter = waiting("b", 1, others.lock("b", LEASE).waiting(LONG));
        server.lose(held);
        assertEquals(List.of("lost"), seen);
        assertThrows(LockLostException.class, held::check);
        assertFalse(held.release());
        assertTrue(waiter.get().release());
        assertTrue(others.lock("a", LEASE).acquire().release());
    }

    @Test
    void aLossInterruptsTheWork() {
        assertThrows(
                LockLostException.class,
                () -> locks.lock("report", LEASE).run(held -> {
                    server.lose(held);
                    new CountDownLatch(1).await();
                }));
    }

    @Test
    void aRefusedKeyFailsAtOnceUntilItIsAllowed() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        List<FutureTask<Held>> waiters = List.of(
                waiting("report", 1, others.lock("report", LEASE).waiting(LONG)),
                waiting("report", 2, others.lock("report", LEASE).waiting(LONG)),
                waiting("report", 3, process().lock("report", LEASE).waiting(LONG)));
        server.refuse("report");
        for (FutureTask<Held> waiter : waiters) {
            failure(LockUnavailableException.class, waiter);
        }
        ServerLock lock = others.lock("report", LEASE);
        assertThrows(LockUnavailableException.class, lock::acquire);
        assertThrows(LockUnavailableException.class, lock.waiting(LONG)::acquire);
        assertThrows(LockUnavailableException.class, () -> held.extend(LEASE));
        held.check();
        held.verify();
        advance(27);
        assertThrows(LockLostException.class, held::check);
        server.allow("report");
        assertThrows(LockRefusedException.class, lock::acquire);
        advance(4);
        assertTrue(lock.acquire().release());
    }

    @Test
    void aTickRunsOnceAndAgainAfterAnError() throws Exception {
        Duration period = Duration.ofMinutes(1);
        assertEquals(Outcome.RAN, locks.once("job", period).run(held -> {}));
        assertEquals(Outcome.ELSEWHERE, others.once("job", period).run(held -> {}));
        advance(60);
        assertThrows(
                IllegalStateException.class,
                () -> locks.once("job", period).run(held -> {
                    throw new IllegalStateException("the work failed");
                }));
        assertEquals(Outcome.RAN, others.once("job", period).run(held -> {}));
        assertEquals(Outcome.ELSEWHERE, locks.once("job", period).run(held -> {}));
        advance(60);
        assertEquals(Outcome.RAN, locks.once("job", period).rerun(false).run(held -> {}));
    }

    @Test
    void aLeaderIsElectedAndDeposed() throws Exception {
        try (Leader leader = locks.leader("chief", LEASE)) {
            leader.start(token -> seen.add("elected"), token -> seen.add("deposed"));
            TestServer.until("it is elected", () -> seen.contains("elected"));
            server.expire("chief");
            Held held = others.lock("chief", LEASE).acquire();
            advance(10);
            assertEquals(List.of("elected", "deposed"), seen);
            assertTrue(held.release());
            advance(60);
            assertEquals(List.of("elected", "deposed", "elected"), seen);
        }
        assertEquals(List.of("elected", "deposed", "elected", "deposed"), seen);
    }

    @Test
    void theLocksOfASessionEndWithItsWaits() throws Exception {
        Held other = others.lock("other", LONG).acquire();
        assertNotNull(locks.lock("free", LEASE).session().acquire());
        FutureTask<Held> waiter =
                waiting("other", 1, locks.lock("other", LEASE).session().waiting(LONG));
        locks.close();
        failure(LockMisuseException.class, waiter);
        queued("other", 0);
        assertTrue(other.release());
        Held session = others.lock("report", LEASE).session().acquire();
        assertTrue(session.release());
    }

    @Test
    void futuresWaitWithoutAThread() throws Exception {
        Held held = locks.lock("report", LEASE).acquireAsync().join();
        CompletableFuture<Held> next =
                others.lock("report", LEASE).waiting(LONG).acquireAsync();
        CompletableFuture<Held> last =
                others.lock("report", LEASE).waiting(Duration.ofSeconds(5)).acquireAsync();
        queued("report", 2);
        advance(5);
        assertTrue(last.isCompletedExceptionally());
        assertFalse(next.isDone());
        assertTrue(held.releaseAsync().join());
        assertTrue(next.join().releaseAsync().join());
    }

    @Test
    void whatItLacksIsUnavailable() throws Exception {
        Duration within = Duration.ofSeconds(1);
        for (ServerLock lock : List.of(
                locks.lock("report", LEASE).replicas(1, within),
                locks.lock("report", LEASE).fsync(within))) {
            assertThrows(LockUnavailableException.class, lock::acquire);
        }
        Held held = locks.lock("report", LEASE).acquire();
        LockUnavailableException lacks =
                assertThrows(LockUnavailableException.class, () -> held.fenced("SET", "result", 42));
        assertTrue(lacks.getMessage().contains("lacks SET"), lacks.getMessage());
        server.expire("report");
        assertThrows(LockLostException.class, () -> held.fenced("SET", "result", 42));
    }

    @Test
    void anInterruptedAttemptLeavesNothing() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        List<Thread> waiters = new ArrayList<>();
        for (int count = 1; count <= 3; count++) {
            Locks mine = count == 3 ? process() : others;
            Thread waiter = new Thread(() -> assertThrows(
                    InterruptedException.class,
                    () -> mine.lock("report", LEASE).waiting(LONG).acquire()));
            waiter.start();
            waiters.add(waiter);
            queued("report", count);
        }
        for (Thread waiter : waiters) {
            waiter.interrupt();
            waiter.join();
        }
        queued("report", 0);
        assertTrue(held.release());
        assertTrue(locks.lock("report", LEASE).acquire().release());
    }

    @Test
    void aCallbackMayMoveTheClock() throws Exception {
        locks.lock("report", LEASE)
                .maxHold(Duration.ofSeconds(1))
                .onLost(why -> {
                    advance(1);
                    seen.add("" + server.clock().now().getEpochSecond());
                })
                .acquire();
        long began = server.clock().now().getEpochSecond();
        advance(60);
        TestServer.until("it has moved it", () -> List.of("" + (began + 61)).equals(seen));
    }

    @Test
    void aThreadThatWaitsForSomethingElseIsNotWaitedFor() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        CountDownLatch gate = new CountDownLatch(1);
        ServerLock lock = others.lock("report", LEASE).waiting(LONG);
        FutureTask<Boolean> waiter = start(() -> lock.call(mine -> {
            gate.await();
            return true;
        }));
        queued("report", 1);
        assertTrue(held.release());
        advance(1);
        gate.countDown();
        assertTrue(waiter.get());
    }
}
