package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.Counts;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Attempts and releases that return futures. */
class AsyncTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration LONG = Duration.ofMinutes(10);

    private static TestServer server;
    private static RedisClient client;

    private Locks locks;

    @BeforeAll
    static void startServer() throws Exception {
        server = new TestServer();
        client = RedisClient.create();
    }

    @AfterAll
    static void endServer() throws Exception {
        client.shutdown();
        server.close();
    }

    @BeforeEach
    void open() {
        locks = open(UnaryOperator.identity());
    }

    @AfterEach
    void close() {
        locks.close();
        server.client.flushAll();
    }

    private static Locks open(UnaryOperator<Locks.Builder> options) {
        RedisURI uri = RedisURI.create("127.0.0.1", server.port);
        return options.apply(Locks.builder(LettuceServer.of(client, uri, client.connect(uri))))
                .build();
    }

    private static <X extends Throwable> X failure(Class<X> type, CompletableFuture<?> future) {
        return assertInstanceOf(
                type, assertThrows(CompletionException.class, future::join).getCause());
    }

    /** Waits until the server has this many waiters for the key. */
    private static void awaitWaiters(String key, int count) throws InterruptedException {
        TestServer.until(count + " waiters", () -> server.info(key, "waiters").equals("" + count));
    }

    private void awaitNothingPending() throws InterruptedException {
        TestServer.until(
                "nothing is pending",
                () -> Counts.of(locks.engine).entrySet().stream()
                        .filter(count -> !count.getKey().equals("holds"))
                        .allMatch(count -> count.getValue() == 0));
    }

    @Test
    void aFreeLockIsAcquiredAndReleased() throws Exception {
        Held held = locks.lock("free", LEASE).acquireAsync().join();
        assertTrue(held.token() > 0);
        assertFalse(server.isFree("free"));
        assertTrue(held.releaseAsync().join());
        assertTrue(server.isFree("free"));
        failure(LockMisuseException.class, held.releaseAsync());
        awaitNothingPending();
    }

    @Test
    void aTakenLockIsRefusedOrTimesOut() {
        Held held = locks.lock("taken", LEASE).acquireAsync().join();
        failure(LockRefusedException.class, locks.lock("taken", LEASE).acquireAsync());
        failure(
                LockTimeoutException.class,
                locks.lock("taken", LEASE).waiting(Duration.ofMillis(50)).acquireAsync());
        assertTrue(held.releaseAsync().join());
    }

    @Test
    void waitersGetTheLockInTheOrderOfTheirArrival() throws Exception {
        Held held = locks.lock("queue", LEASE).acquireAsync().join();
        List<Integer> order = new ArrayList<>();
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            int mine = number;
            CompletableFuture<Held> pending =
                    locks.lock("queue", LEASE).waiting(LONG).acquireAsync();
            all.add(pending.thenCompose(got -> {
                order.add(mine); // one holder at a time
                return got.releaseAsync();
            }));
            awaitWaiters("queue", number + 1);
        }
        assertTrue(held.releaseAsync().join());
        all.forEach(one -> assertTrue(one.join()));
        assertEquals(java.util.stream.IntStream.range(0, 20).boxed().toList(), order);
        awaitNothingPending();
    }

    @Test
    void aThousandWaitsNeedNoThreadOfTheirOwn() throws Exception {
        Held held = locks.lock("many", LEASE).acquireAsync().join();
        int before = Thread.activeCount();
        List<CompletableFuture<Held>> waits = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            waits.add(locks.lock("many", LEASE).waiting(LONG).acquireAsync());
        }
        awaitWaiters("many", 1000);
        assertTrue(
                Census.threads() <= 10, "threads: " + Thread.getAllStackTraces().keySet());
        // Lettuce and the common pool have a few as well.
        assertTrue(
                Thread.activeCount() <= before + 20,
                "threads: " + Thread.getAllStackTraces().keySet());
        List<CompletableFuture<Boolean>> released =
                waits.stream().map(wait -> wait.thenCompose(Held::releaseAsync)).toList();
        assertTrue(held.releaseAsync().join());
        released.forEach(one -> assertTrue(one.join()));
        assertTrue(server.isFree("many"));
        awaitNothingPending();
    }

    @Test
    void cancellingTheFutureLeavesNothingBehind() throws Exception {
        Held held = locks.lock("cancel", LEASE).acquireAsync().join();
        CompletableFuture<Held> pending =
                locks.lock("cancel", LEASE).waiting(LONG).acquireAsync();
        awaitWaiters("cancel", 1);
        assertTrue(pending.cancel(true));
        awaitWaiters("cancel", 0);
        awaitNothingPending();
        assertTrue(held.releaseAsync().join());
        assertTrue(server.isFree("cancel"));
    }

    @Test
    void aTimeOutOfTheFutureEndsTheAttempt() throws Exception {
        Held held = locks.lock("late", LEASE).acquireAsync().join();
        CompletableFuture<Held> pending =
                locks.lock("late", LEASE).waiting(LONG).acquireAsync().orTimeout(50, TimeUnit.MILLISECONDS);
        failure(java.util.concurrent.TimeoutException.class, pending);
        awaitNothingPending();
        awaitWaiters("late", 0);
        assertTrue(held.releaseAsync().join());
    }

    @Test
    void thousandsOfCancellationsAtRandomMomentsLeaveNothingBehind() throws Exception {
        List<CompletableFuture<Held>> all = new ArrayList<>();
        List<CompletableFuture<Boolean>> released = new ArrayList<>();
        ThreadLocalRandom dice = ThreadLocalRandom.current();
        for (int number = 0; number < 5000; number++) {
            CompletableFuture<Held> pending =
                    locks.lock("storm" + number % 3, LEASE).waiting(LONG).acquireAsync();
            released.add(pending.thenCompose(Held::releaseAsync));
            all.add(pending);
            CompletableFuture.delayedExecutor(dice.nextInt(20_000), TimeUnit.MICROSECONDS)
                    .execute(() -> pending.cancel(true));
        }
        int granted = 0;
        for (int number = 0; number < all.size(); number++) {
            if (released.get(number).handle((done, error) -> error == null).join()) {
                granted++;
            } else {
                assertTrue(all.get(number).isCancelled(), "attempt " + number + " failed");
            }
        }
        assertTrue(granted < all.size(), "no attempt was cancelled");
        awaitNothingPending();
        for (int key = 0; key < 3; key++) {
            Held fresh = locks.lock("storm" + key, LEASE)
                    .waiting(Duration.ofMinutes(1))
                    .acquireAsync()
                    .join();
            assertEquals("0", server.info("storm" + key, "waiters"));
            assertTrue(fresh.releaseAsync().join());
            assertTrue(server.isFree("storm" + key));
        }
        assertEquals(0, Counts.of(locks.engine).get("holds"));
    }

    @Test
    void aClosedManagerFailsPendingFuturesAtOnce() throws Exception {
        Held held = locks.lock("closed", LEASE).acquireAsync().join();
        List<CompletableFuture<Held>> waits = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            waits.add(locks.lock("closed", LEASE).waiting(LONG).acquireAsync());
        }
        awaitWaiters("closed", 10);
        locks.close();
        waits.forEach(wait -> failure(LockMisuseException.class, wait));
        awaitWaiters("closed", 0);
        failure(LockMisuseException.class, locks.lock("closed", LEASE).acquireAsync());
        assertTrue(held.releaseAsync().join());
        TestServer.until("all threads have ended", () -> Census.threads() == 0);
    }

    @Test
    void codeThatIsAddedToAFutureMayBlock() {
        AtomicReference<String> thread = new AtomicReference<>();
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        Held held = locks.lock("blocks", LEASE).acquireAsync().join();
        for (int number = 0; number < 10; number++) {
            all.add(locks.lock("blocks", LEASE).waiting(LONG).acquireAsync().thenApply(got -> {
                thread.set(Thread.currentThread().getName());
                got.verify();
                return got.release();
            }));
        }
        held.release();
        all.forEach(one -> assertTrue(one.join()));
        assertTrue(thread.get().startsWith("ForkJoinPool"), thread.get());
    }

    @Test
    void futuresCompleteInTheExecutorOfTheApplication() throws Exception {
        CountDownLatch used = new CountDownLatch(2);
        try (Locks mine = open(builder -> builder.executor(work -> {
            used.countDown();
            ForkJoinPool.commonPool().execute(work);
        }))) {
            assertTrue(mine.lock("mine", LEASE)
                    .acquireAsync()
                    .thenCompose(Held::releaseAsync)
                    .join());
            assertTrue(used.await(1, TimeUnit.MINUTES));
        }
    }

    @Test
    void anExecutorThatRejectsCostsNoLock() {
        try (Locks mine =
                open(builder -> builder.logger(System.getLogger("silent")).executor(work -> {
                    throw new java.util.concurrent.RejectedExecutionException();
                }))) {
            assertTrue(mine.lock("rejected", LEASE)
                    .acquireAsync()
                    .thenCompose(Held::releaseAsync)
                    .join());
        }
    }

    @Test
    void aLockIsRenewedAndItsLossReported() throws Exception {
        CountDownLatch lost = new CountDownLatch(1);
        Held held = locks.lock("renewed", Duration.ofSeconds(3))
                .onLost(why -> lost.countDown())
                .acquireAsync()
                .join();
        AtomicReference<Duration> before = new AtomicReference<>(held.left());
        TestServer.until("a renewal", () -> {
            Duration left = held.left();
            return left.compareTo(before.getAndSet(left)) > 0;
        });
        server.client.del("renewed");
        assertTrue(lost.await(1, TimeUnit.MINUTES));
        assertFalse(held.releaseAsync().join());
    }

    @Test
    void aLockWithAShortestTimeIsReleasedLater() throws Exception {
        Held held = locks.lock("short", LEASE)
                .atLeast(Duration.ofMillis(300))
                .acquireAsync()
                .join();
        assertTrue(held.releaseAsync().join());
        assertFalse(server.isFree("short"));
        TestServer.until("it is free", () -> server.isFree("short"));
    }

    @Test
    void whatNeedsAThreadIsAnError() {
        ServerLock lock = locks.lock("unfit", LEASE);
        failure(LockArgumentException.class, lock.reentrant().acquireAsync());
        failure(LockArgumentException.class, lock.session().acquireAsync());
        failure(LockArgumentException.class, lock.replicas(1, LEASE).acquireAsync());
        failure(LockArgumentException.class, lock.fsync(LEASE).acquireAsync());
        assertTrue(server.isFree("unfit"));
    }

    @Test
    void jedisHasNoFutures() throws Exception {
        try (Locks blocking = Locks.over(JedisServer.of(server.client))) {
            LockMisuseException error = failure(
                    LockMisuseException.class, blocking.lock("jedis", LEASE).acquireAsync());
            assertTrue(error.getMessage().contains("futures need Lettuce"), error.getMessage());
            Held held = blocking.lock("jedis", LEASE).acquire();
            failure(LockMisuseException.class, held.releaseAsync());
            held.check(); // it is still held
            assertTrue(held.release());
        }
    }

    @Test
    void aLockFromACallThatBlocksCanBeReleasedWithAFuture() throws Exception {
        ServerLock twice = locks.lock("twice", LEASE).reentrant();
        Held held = twice.acquire();
        assertEquals(held, twice.acquire());
        assertTrue(held.releaseAsync().join());
        assertFalse(server.isFree("twice"));
        assertTrue(held.releaseAsync().join());
        assertTrue(server.isFree("twice"));
    }
}
