package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.Counts;
import dev.serverlock.internal.Lone;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Clocked;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.WatchedConnection;
import dev.serverlock.testing.LockServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** One result for many threads and processes, on the server in memory. */
class SingleFlightTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final SingleFlight.Work<RuntimeException> NEVER = held -> {
        throw new AssertionError("this caller must not compute");
    };

    private final LockServer server = new LockServer();
    private final List<Locks> all = new ArrayList<>();
    private final List<String> hooked = new CopyOnWriteArrayList<>();
    private final Locks locks = process();
    private final Locks others = process();
    /** Opened when the first caller computes, and when it may return. */
    private final CountDownLatch computing = new CountDownLatch(1);

    private final CountDownLatch done = new CountDownLatch(1);

    @AfterEach
    void close() {
        all.forEach(Locks::close);
        server.clock().advance(Duration.ofHours(2));
    }

    private Locks process() {
        Hooks hooks = new Hooks() {
            @Override
            public Watch began(List<String> keys) {
                return new Watch() {
                    @Override
                    public void result(String command, Duration waited) {
                        hooked.add("result " + command);
                    }
                };
            }

            @Override
            public void granted(String key, Duration waited) {
                hooked.add("granted");
            }

            @Override
            public void refused(String key, Duration waited, LockException why) {
                hooked.add("refused");
            }

            @Override
            public void released(String key, Duration held, boolean inTime) {
                hooked.add("released");
            }
        };
        Locks made = Locks.builder(server.client())
                .hooks(hooks)
                .logger(System.getLogger("silent"))
                .build();
        all.add(made);
        return made;
    }

    /** A client that first does something else whenever it is to subscribe. */
    private record Late(Server server, Node node, Runnable first) implements Server, Node, Clocked {
        @Override
        public Clock clock() {
            return ((Clocked) server).clock();
        }

        @Override
        public Node node(byte[] key) {
            return this;
        }

        @Override
        public boolean isShared() {
            return node.isShared();
        }

        @Override
        public void exchange(List<Call> calls, Duration timeout) {
            node.exchange(calls, timeout);
        }

        @Override
        public Connection dial(Duration timeout) {
            return node.dial(timeout);
        }

        @Override
        public WatchedConnection watch(Duration timeout) {
            return node.watch(timeout);
        }

        @Override
        public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
            first.run();
            return node.subscribe(channel, onMessage, timeout);
        }
    }

    private Object send(Object... words) {
        Call call = new Call(
                Arrays.stream(words).map(word -> Words.bytes(word.toString())).toArray(byte[][]::new));
        server.client().node(call.words[1]).exchange(List.of(call), Duration.ofSeconds(60));
        return call.value;
    }

    private static <T> FutureTask<T> start(Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        Thread thread = new Thread(task, "caller");
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static SingleFlight report(Locks of) {
        return of.singleFlight("report", LEASE);
    }

    private static int callers(Locks of) {
        return Counts.of(of.engine).get("flights");
    }

    private static void joined(Locks of, int count) throws InterruptedException {
        TestServer.until(count + " callers", () -> callers(of) == count);
    }

    private byte[] computes(Held held) throws InterruptedException {
        computing.countDown();
        assertTrue(done.await(60, TimeUnit.SECONDS));
        return Words.bytes("token " + held.token());
    }

    /** The first caller of these locks, which computes until the test is done with it. */
    private FutureTask<byte[]> leader(Locks of) throws InterruptedException {
        FutureTask<byte[]> first = start(() -> report(of).call(this::computes));
        assertTrue(computing.await(60, TimeUnit.SECONDS));
        return first;
    }

    private static <X extends Throwable> X failure(Class<X> type, FutureTask<?> task) {
        return assertInstanceOf(
                type, assertThrows(ExecutionException.class, task::get).getCause());
    }

    private void nothingIsLeft() throws InterruptedException {
        TestServer.until(
                "nothing is left",
                () -> all.stream().allMatch(one -> {
                    var counts = Counts.of(one.engine);
                    return counts.values().stream().allMatch(count -> count == 0);
                }));
        try (Locks last = server.locks()) {
            assertEquals("free", Words.text(report(last).call(held -> Words.bytes("free"))));
        } catch (InterruptedException interrupt) {
            throw new AssertionError(interrupt);
        }
    }

    @Test
    void allCallersOfAllProcessesGetWhatOneComputes() throws Exception {
        FutureTask<byte[]> first = leader(locks);
        List<FutureTask<byte[]>> rest = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            rest.add(start(() -> report(locks).call(NEVER)));
            rest.add(start(() -> report(others).call(NEVER)));
        }
        joined(locks, 11);
        joined(others, 10);
        TestServer.until("one attempt waits", () -> server.waiting("report") == 1);
        done.countDown();
        byte[] value = first.get();
        assertTrue(Words.text(value).startsWith("token "));
        for (FutureTask<byte[]> caller : rest) {
            assertArrayEquals(value, caller.get());
        }
        value[0] = '!';
        assertEquals("t", Words.text(rest.get(0).get()).substring(0, 1));
        nothingIsLeft();
    }

    @Test
    void anAttemptThatEndsWithAResultCallsNoHook() throws Exception {
        FutureTask<byte[]> first = leader(locks);
        FutureTask<byte[]> second = start(() -> report(others).call(NEVER));
        TestServer.until("it waits", () -> server.waiting("report") == 1);
        done.countDown();
        first.get();
        second.get();
        TestServer.until("all hooks", () -> hooked.size() >= 3);
        assertEquals(
                List.of("granted", "released", "result LOCK.ACQUIRE"),
                hooked.stream().sorted().toList());
    }

    @Test
    void aCallerThatComesOnceComputeHasReturnedComputesAgain() throws Exception {
        long first = Long.parseLong(Words.text(report(locks).call(held -> Words.bytes("" + held.token()))));
        long second = Long.parseLong(Words.text(report(locks).call(held -> Words.bytes("" + held.token()))));
        assertTrue(second > first);
        assertFalse(server.waiting("report") > 0);
    }

    @Test
    void whenComputeFailsTheOneThatHasWaitedLongestComputes() throws Exception {
        FutureTask<byte[]> first = start(() -> report(locks).call(held -> {
            computes(held);
            throw new IllegalStateException("no data");
        }));
        assertTrue(computing.await(60, TimeUnit.SECONDS));
        FutureTask<byte[]> second = start(() -> report(locks).call(held -> Words.bytes("second")));
        joined(locks, 2);
        FutureTask<byte[]> third = start(() -> report(locks).call(NEVER));
        joined(locks, 3);
        done.countDown();
        assertEquals("no data", failure(IllegalStateException.class, first).getMessage());
        assertEquals("second", Words.text(second.get()));
        assertEquals("second", Words.text(third.get()));
        nothingIsLeft();
    }

    @Test
    void nullIsNotAValue() throws Exception {
        LockArgumentException error =
                assertThrows(LockArgumentException.class, () -> report(locks).call(held -> null));
        assertTrue(error.getMessage().contains("compute returned null"), error.getMessage());
        nothingIsLeft();
    }

    @Test
    void eachCallerHasItsOwnWait() throws Exception {
        Held held = others.lock("report", LEASE).acquire();
        FutureTask<byte[]> first =
                start(() -> report(locks).waiting(Duration.ofSeconds(5)).call(NEVER));
        joined(locks, 1);
        TestServer.until("it waits", () -> server.waiting("report") == 1);
        server.clock().advance(Duration.ofSeconds(1));
        FutureTask<byte[]> second =
                start(() -> report(locks).waiting(Duration.ofSeconds(2)).call(NEVER));
        joined(locks, 2);
        FutureTask<byte[]> third =
                start(() -> report(locks).waiting(Duration.ofSeconds(9)).call(got -> Words.bytes("third")));
        joined(locks, 3);
        server.clock().advance(Duration.ofSeconds(3));
        assertEquals("timeout", failure(LockTimeoutException.class, second).code());
        server.clock().advance(Duration.ofSeconds(2));
        failure(LockTimeoutException.class, first);
        joined(locks, 1);
        held.release();
        assertEquals("third", Words.text(third.get()));
        nothingIsLeft();
    }

    /** Its first piece has ended, and it is not subscribed yet, when the holder releases the lock with a result. */
    @Test
    void aQueuedAttemptKeepsAskingForTheResult() throws Exception {
        Object theirs = send("LOCK.ACQUIRE", "report", "PX", 3_600_000, "ID", 1);
        Server client = server.client();
        Runnable release = () -> send("LOCK.RELEASE", "report", theirs, "RESULT", "theirs");
        Locks late = Locks.over(new Late(client, client.node(new byte[0]), release));
        all.add(late);
        Duration second = Duration.ofSeconds(1);
        FutureTask<?> opens =
                start(() -> late.lock("report", LEASE).waiting(second).acquire());
        TestServer.until("it waits", () -> server.waiting("report") == 1);
        server.clock().advance(second);
        failure(LockTimeoutException.class, opens); // the connection on which the manager's only wait blocks stays open
        FutureTask<byte[]> waiting = start(() -> report(late).call(NEVER));
        TestServer.until("the next one waits", () -> server.waiting("report") == 1);
        Lone.end(late.engine);
        server.clock().advance(Duration.ofSeconds(5));
        assertEquals("theirs", Words.text(waiting.get()));
        nothingIsLeft();
    }

    @Test
    void anErrorOfTheAttemptGoesToAll() throws Exception {
        Held held = others.lock("report", LEASE).acquire();
        FutureTask<byte[]> first = start(() -> report(locks).call(NEVER));
        TestServer.until("it waits", () -> server.waiting("report") == 1);
        FutureTask<byte[]> second = start(() -> report(locks).call(NEVER));
        joined(locks, 2);
        server.refuse("report");
        LockException one = failure(LockUnavailableException.class, first);
        LockException other = failure(LockUnavailableException.class, second);
        assertEquals(one.getMessage(), other.getMessage());
        server.allow("report");
        held.release();
        nothingIsLeft();
    }

    @Test
    void closingTheManagerEndsAllThatWait() throws Exception {
        FutureTask<byte[]> first = leader(locks);
        FutureTask<byte[]> second = start(() -> report(locks).call(NEVER));
        joined(locks, 2);
        locks.close();
        failure(LockMisuseException.class, second);
        done.countDown();
        assertTrue(Words.text(first.get()).startsWith("token"));
        assertThrows(LockMisuseException.class, () -> report(locks).call(NEVER));
    }

    @Test
    void askingForTheSameKeyWithinComputeIsMisuse() throws Exception {
        byte[] value = report(locks).call(held -> {
            assertThrows(LockMisuseException.class, () -> report(locks).call(NEVER));
            assertThrows(
                    LockMisuseException.class, () -> locks.lock("report", LEASE).acquire());
            server.lose(held);
            try {
                Thread.sleep(60_000);
            } catch (InterruptedException lost) {
                assertThrows(LockMisuseException.class, () -> report(locks).call(NEVER));
            }
            return Words.bytes("needs no lock");
        });
        assertEquals("needs no lock", Words.text(value));
        nothingIsLeft();
    }

    @Test
    void aLossStopsComputeAndTheNextOneComputes() throws Exception {
        CountDownLatch entered = new CountDownLatch(1);
        List<Held> holds = new CopyOnWriteArrayList<>();
        FutureTask<byte[]> first = start(() -> report(locks).call(held -> {
            holds.add(held);
            entered.countDown();
            Thread.sleep(60_000);
            return null;
        }));
        assertTrue(entered.await(60, TimeUnit.SECONDS));
        FutureTask<byte[]> second = start(() -> report(locks).call(held -> Words.bytes("second")));
        joined(locks, 2);
        server.lose(holds.get(0));
        failure(LockLostException.class, first);
        assertEquals("second", Words.text(second.get()));
        nothingIsLeft();
    }

    @Test
    void aValueThatIsTooLongForTheServerIsComputedByEachProcess() throws Exception {
        byte[] big = new byte[65_537];
        FutureTask<byte[]> first = start(() -> report(locks).call(held -> {
            computes(held);
            return big;
        }));
        assertTrue(computing.await(60, TimeUnit.SECONDS));
        FutureTask<byte[]> second = start(() -> report(others).call(held -> Words.bytes("own")));
        TestServer.until("it waits", () -> server.waiting("report") == 1);
        done.countDown();
        assertArrayEquals(big, first.get());
        assertEquals("own", Words.text(second.get()));
        nothingIsLeft();
    }

    @Test
    void optionsAreChecked() {
        assertThrows(LockArgumentException.class, () -> report(locks).waiting(Duration.ZERO));
        assertThrows(LockArgumentException.class, () -> report(locks).waiting(null));
        assertThrows(LockArgumentException.class, () -> report(locks).owner("two words"));
        assertThrows(LockArgumentException.class, () -> locks.singleFlight(null, LEASE));
        assertThrows(LockArgumentException.class, () -> locks.singleFlight("report", Duration.ZERO));
    }
}
