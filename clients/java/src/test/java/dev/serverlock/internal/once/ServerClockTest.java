package dev.serverlock.internal.once;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.TestServer;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.runtime.MovedClock;
import dev.serverlock.internal.runtime.SystemClock;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ScriptedServer;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.ServerException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** The server's clock and margin are requested rarely, by one caller at a time. */
class ServerClockTest {
    private static final long SECOND = Clock.SECOND;
    private static final long MILLISECOND = Clock.MILLISECOND;

    private final MovedClock time = new MovedClock();
    /** How long each reply takes; the last one applies to all that follow. */
    private final Deque<Long> takes = new ArrayDeque<>(List.of(0L));

    private final Deque<RuntimeException> failures = new ArrayDeque<>();
    private final ScriptedServer server = new ScriptedServer(words -> reply());
    private long ahead = 1_000_000 * SECOND;

    private List<String> reply() {
        if (!failures.isEmpty()) {
            throw failures.poll();
        }
        long span = takes.size() > 1 ? takes.poll() : takes.peek();
        time.pass(span / 2);
        long now = time.monotonic() + ahead;
        time.pass(span / 2);
        return List.of("" + now / SECOND, "" + now % SECOND / 1000);
    }

    private void takes(Long... spans) {
        takes.clear();
        takes.addAll(Arrays.asList(spans));
    }

    private ServerClock clock(Server over) {
        Context context = new Context(new SystemClock(time), 5 * SECOND, System.getLogger("silent"), Runnable::run);
        return new ServerClock(context, new Router(over));
    }

    private static Request keyed(String key) {
        return new Request(List.of(Words.bytes(key)), Duration.ofMinutes(1), Request.Form.ONE, false, null);
    }

    private int asked() {
        return server.count("TIME");
    }

    private static ServerException lost() {
        return new ServerException("the connection was lost", null);
    }

    @Test
    void theOffsetIsTakenAtTheMidpointOfTheCall() throws Exception {
        takes(400 * MILLISECOND);
        Estimate found = clock(server).read(keyed("a"));
        assertEquals(new Estimate(ahead, 200 * MILLISECOND, 400 * MILLISECOND), found);
    }

    @Test
    void repliesToTimeAreBytesOrNumbers() {
        long sent = 10 * SECOND;
        long received = 10_500 * MILLISECOND;
        for (Object reply :
                List.of(List.of(Words.bytes("1800000000"), Words.bytes("250000")), List.of(1_800_000_000L, 250_000L))) {
            Estimate found = Estimate.read(reply, sent, received);
            long offset = 1_800_000_000 * SECOND + 250 * MILLISECOND - 10_250 * MILLISECOND;
            assertEquals(new Estimate(offset, 250 * MILLISECOND, received), found);
            assertTrue(found.isGood());
        }
        for (Object reply :
                Arrays.asList(null, "OK", List.of("1"), List.of("x", "y"), List.of("9" + "0".repeat(17), 0L))) {
            assertThrows(ReplyError.class, () -> Estimate.read(reply, 0, 0));
        }
    }

    @Test
    void theTimeIsAskedAtMostOnceAMinute() throws Exception {
        ServerClock clock = clock(server);
        for (int turn = 0; turn < 3; turn++) {
            clock.read(keyed("a"));
        }
        time.pass(ServerClock.VALID_FOR - 1);
        clock.read(keyed("b"));
        assertEquals(1, asked());
        time.pass(1);
        ahead += 3 * SECOND; // somebody has set its clock
        assertEquals(ahead, clock.read(keyed("a")).offset(), 1000);
        assertEquals(2, asked());
    }

    @Test
    void aSlowReplyToTimeIsAskedForOnceMore() throws Exception {
        takes(510 * MILLISECOND, 0L);
        ServerClock clock = clock(server);
        Estimate found = clock.read(keyed("a"));
        assertTrue(found.isGood());
        assertEquals(found, clock.read(keyed("a")));
        assertEquals(2, asked());
    }

    @Test
    void anEstimateFromSlowRepliesIsUsedOnce() throws Exception {
        takes(800 * MILLISECOND, 1200 * MILLISECOND, 0L);
        ServerClock clock = clock(server);
        Estimate found = clock.read(keyed("a"));
        assertEquals(400 * MILLISECOND, found.doubt());
        assertFalse(found.isGood());
        clock.read(keyed("a"));
        clock.read(keyed("a"));
        assertEquals(3, asked());
    }

    @Test
    void aSlowReplyCountsIfTheNextOneIsLost() throws Exception {
        AtomicInteger calls = new AtomicInteger();
        ScriptedServer slow = new ScriptedServer(words -> {
            if (calls.incrementAndGet() == 2) {
                throw lost();
            }
            takes(800 * MILLISECOND);
            return reply();
        });
        assertEquals(400 * MILLISECOND, clock(slow).read(keyed("a")).doubt());
        assertEquals(2, calls.get());
    }

    @Test
    void eachServerOfAClusterHasItsOwnClock() throws Exception {
        ServerClock clock = clock(server.cluster());
        for (String key : List.of("a", "b", "a")) {
            clock.read(keyed(key));
        }
        assertEquals(2, asked());
        time.pass(ServerClock.VALID_FOR);
        clock.read(keyed("a"));
        assertEquals(1, clock.kept());
    }

    @Test
    void aLostReplyToTimeIsAskedForOnceMore() throws Exception {
        ServerClock clock = clock(server);
        failures.add(lost());
        clock.read(keyed("a"));
        assertEquals(2, asked());
        time.pass(ServerClock.VALID_FOR);
        failures.addAll(List.of(lost(), lost()));
        assertThrows(ConnectionLost.class, () -> clock.read(keyed("a")));
        failures.addAll(List.of(new ReplyException("LOADING soon"), new ReplyException("LOADING soon")));
        assertThrows(ReplyError.class, () -> clock.read(keyed("a")));
        assertEquals(6, asked());
        failures.add(new ReplyException("NOPERM no"));
        assertThrows(ReplyError.class, () -> clock.read(keyed("a")));
        assertEquals(7, asked());
    }

    @Test
    void manyCallersAskForTheTimeOnceAndAnInterruptAffectsOnlyItsCaller() throws Exception {
        CountDownLatch mayReply = new CountDownLatch(1);
        ScriptedServer slow = new ScriptedServer(words -> {
            await(mayReply);
            return reply();
        });
        ServerClock clock = clock(slow);
        AtomicInteger found = new AtomicInteger();
        AtomicInteger interrupted = new AtomicInteger();
        List<Thread> callers = java.util.stream.IntStream.range(0, 20)
                .mapToObj(number -> new Thread(() -> {
                    try {
                        clock.read(keyed("a"));
                        found.incrementAndGet();
                    } catch (InterruptedException ended) {
                        interrupted.incrementAndGet();
                    }
                }))
                .toList();
        callers.get(0).start();
        TestServer.until("the first one asks", () -> slow.count("TIME") == 1);
        callers.subList(1, 20).forEach(Thread::start);
        callers.get(7).interrupt();
        callers.get(7).join();
        mayReply.countDown();
        for (Thread caller : callers) {
            caller.join();
        }
        assertEquals(1, slow.count("TIME"));
        assertEquals(19, found.get());
        assertEquals(1, interrupted.get());
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void theMarginIsAskedAtMostOnceAMinute() throws Exception {
        ServerClock clock = clock(server);
        AtomicInteger asked = new AtomicInteger();
        AtomicReference<Supplier<Object>> answer = new AtomicReference<>();
        Supplier<Object> ask = () -> {
            asked.incrementAndGet();
            return answer.get().get();
        };
        assertEquals(ServerClock.USUAL_MARGIN, clock.margin());
        answer.set(() -> List.of(Words.bytes("lease-ms"), 5000L, Words.bytes("free-in-ms"), 12_001L));
        assertEquals(7 * SECOND, clock.readMargin(ask));
        assertEquals(7 * SECOND, clock.readMargin(ask));
        assertEquals(1, asked.get());
        time.pass(ServerClock.VALID_FOR);
        answer.set(() -> {
            throw new ReplyError("NOPERM no");
        });
        assertEquals(7 * SECOND, clock.readMargin(ask));
        assertEquals(7 * SECOND, clock.readMargin(ask));
        assertEquals(2, asked.get());
        time.pass(ServerClock.VALID_FOR);
        answer.set(() -> {
            throw new ConnectionLost("no reply in time");
        });
        assertEquals(7 * SECOND, clock.readMargin(ask));
        answer.set(() -> List.of(Words.bytes("state"), Words.bytes("free")));
        assertEquals(ServerClock.USUAL_MARGIN, clock.readMargin(ask)); // a lost reply is asked for again
        assertEquals(4, asked.get());
        time.pass(ServerClock.VALID_FOR);
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> clock.readMargin(ask));
        assertEquals(4, asked.get());
    }
}
