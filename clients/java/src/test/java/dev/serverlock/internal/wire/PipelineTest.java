package dev.serverlock.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.TestServer;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.FakeServer;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Callers share two connections. */
class PipelineTest {
    private static final long LONG = 60 * Clock.SECOND;

    private final ExecutorService callers = Executors.newCachedThreadPool();

    @AfterEach
    void end() {
        callers.shutdownNow();
    }

    /** A server that replies with the first word once it is opened. */
    private static final class Gate implements Node {
        final CountDownLatch opened = new CountDownLatch(1);
        final List<Integer> batches = Collections.synchronizedList(new ArrayList<>());
        final AtomicInteger running = new AtomicInteger();
        final AtomicInteger most = new AtomicInteger();

        @Override
        public void exchange(List<Call> calls, Duration timeout) {
            batches.add(calls.size());
            most.accumulateAndGet(running.incrementAndGet(), Math::max);
            try {
                opened.await(timeout.toNanos(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
            calls.forEach(call -> call.value = call.words[0]);
            running.decrementAndGet();
        }

        @Override
        public boolean isShared() {
            return false;
        }

        @Override
        public Connection dial(Duration timeout) {
            throw new UnsupportedOperationException();
        }

        @Override
        public WatchedConnection watch(Duration timeout) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
            throw new UnsupportedOperationException();
        }
    }

    private Future<String> begin(Pipeline pipeline, String word, long timeout) {
        return callers.submit(() -> {
            Call call = FakeServer.call(word);
            pipeline.exchange(List.of(call), timeout);
            return Words.text(call.value);
        });
    }

    @Test
    void callsFromManyCallersAreSentTogetherOverTwoConnections() throws Exception {
        Gate gate = new Gate();
        Pipeline pipeline = new Pipeline(gate);
        List<Future<String>> all = new ArrayList<>();
        for (int caller = 0; caller < 20; caller++) {
            all.add(begin(pipeline, "w" + caller, LONG));
        }
        TestServer.until("18 callers are queued", () -> gate.batches.size() == 2 && pipeline.queued() == 18);
        gate.opened.countDown();
        for (int caller = 0; caller < 20; caller++) {
            assertEquals("w" + caller, all.get(caller).get(60, TimeUnit.SECONDS));
        }
        assertEquals(2, gate.most.get());
        assertEquals(20, gate.batches.stream().mapToInt(size -> size).sum());
        assertTrue(gate.batches.size() <= 4, () -> "" + gate.batches);
    }

    @Test
    void aCallWhoseCallerWaitsTooLongIsNotSent() throws Exception {
        Gate gate = new Gate();
        Pipeline pipeline = new Pipeline(gate);
        begin(pipeline, "a", LONG);
        begin(pipeline, "b", LONG);
        TestServer.until("both connections are taken", () -> gate.batches.size() == 2);
        List<Call> calls = List.of(FakeServer.call("late"));
        assertThrows(ConnectionLost.class, () -> pipeline.exchange(calls, 50 * Clock.MILLISECOND));
        gate.opened.countDown();
        assertEquals(List.of(1, 1), gate.batches);
    }

    @Test
    void aNarrowPipelineHasOneConnectionUntilCallersQueue() throws Exception {
        Gate gate = new Gate();
        Pipeline pipeline = new Pipeline(gate);
        CountDownLatch onQueued = new CountDownLatch(1);
        assertTrue(pipeline.narrow(onQueued::countDown));
        List<Future<String>> all = new ArrayList<>();
        all.add(begin(pipeline, "a", LONG));
        TestServer.until("the connection is taken", () -> gate.batches.size() == 1);
        all.add(begin(pipeline, "b", LONG));
        TestServer.until("one waits", () -> pipeline.queued() == 1);
        assertEquals(1, onQueued.getCount());
        all.add(begin(pipeline, "c", LONG));
        assertTrue(onQueued.await(60, TimeUnit.SECONDS));
        gate.opened.countDown();
        for (Future<String> one : all) {
            one.get(60, TimeUnit.SECONDS);
        }
        assertEquals(1, gate.most.get());
    }

    @Test
    void anInterruptedCallerStillGetsItsReply() throws Exception {
        Gate gate = new Gate();
        Pipeline pipeline = new Pipeline(gate);
        begin(pipeline, "a", LONG);
        begin(pipeline, "b", LONG);
        TestServer.until("both connections are taken", () -> gate.batches.size() == 2);
        Call call = FakeServer.call("mine");
        AtomicInteger wasInterrupted = new AtomicInteger();
        Thread caller = new Thread(() -> {
            pipeline.exchange(List.of(call), LONG);
            wasInterrupted.set(Thread.interrupted() ? 1 : 0);
        });
        caller.start();
        TestServer.until("it waits", () -> pipeline.queued() == 1);
        caller.interrupt();
        gate.opened.countDown();
        caller.join(60_000);
        assertEquals("mine", Words.text(call.value));
        assertEquals(1, wasInterrupted.get());
    }
}
