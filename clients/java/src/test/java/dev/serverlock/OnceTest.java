package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.MovedClock;
import dev.serverlock.internal.runtime.SystemClock;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ScriptedServer;
import dev.serverlock.spi.ServerException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Bodies that run once per period, with a server and clocks that obey the test. */
class OnceTest {
    private static final Duration DAY = Duration.ofDays(1);
    private static final Duration HOUR = Duration.ofHours(1);
    private static final long HALF_A_DAY = 43_200 * Clock.SECOND;
    /** The beginning of a tick of a day, which is the server's time when a test begins. */
    private static final long START = 1_799_971_200 * Clock.SECOND;

    private final MovedClock time = new MovedClock();
    private final Map<String, ScriptedServer.Script> replies = new ConcurrentHashMap<>();
    private final ScriptedServer server = new ScriptedServer(this::reply);
    private final List<Locks> opened = new ArrayList<>();
    private volatile long ahead = START;
    private volatile long margin = Clock.SECOND;
    private volatile long leaseEnds;

    @AfterEach
    void close() {
        opened.forEach(Locks::close);
    }

    private Object reply(List<String> words) {
        ScriptedServer.Script script = replies.get(words.get(0));
        return script == null ? usual(words) : script.reply(words);
    }

    private Object usual(List<String> words) {
        switch (words.get(0)) {
            case "TIME" -> {
                return List.of("" + now() / Clock.SECOND, "" + now() % Clock.SECOND / 1000);
            }
            case "LOCK.INFO" -> {
                return List.of("lease-ms", 5000L, "free-in-ms", 5001 + margin / Clock.MILLISECOND);
            }
            case "LOCK.ACQUIRE" -> granted(words.get(3));
            case "LOCK.EXTEND" -> granted(words.get(4));
            case "LOCK.RELEASE" -> leaseEnds = 0;
            default -> {
                return 1L;
            }
        }
        return 1L;
    }

    private long now() {
        return time.monotonic() + ahead;
    }

    private void granted(String ms) {
        leaseEnds = now() + Long.parseLong(ms) * Clock.MILLISECOND + margin;
    }

    /** Whether the lease ends with the window of the tick. */
    private boolean isKept() {
        long late = leaseEnds - (START + HALF_A_DAY);
        return late >= -2 * Clock.MILLISECOND && late <= 700 * Clock.MILLISECOND;
    }

    private void pass(Duration span) {
        time.pass(span.toNanos());
    }

    private Locks locks() {
        return locks(Duration.ofSeconds(5));
    }

    private Locks locks(Duration timeout) {
        Locks.Builder options = Locks.builder(server).timeout(timeout).logger(System.getLogger("silent"));
        options.clock = new SystemClock(time);
        Locks locks = options.build();
        opened.add(locks);
        return locks;
    }

    private static final Once.Task<RuntimeException> NOTHING = held -> {};

    private void sent(int extensions, int releases) {
        assertEquals(extensions, server.count("LOCK.EXTEND"), "extensions");
        assertEquals(releases, server.count("LOCK.RELEASE"), "releases");
    }

    /** Waits for a condition, while time passes. */
    private void eventually(String what, BooleanSupplier isSo) throws InterruptedException {
        TestServer.until(what, () -> {
            time.pass(10 * Clock.MILLISECOND);
            return isSo.getAsBoolean();
        });
    }

    /** Replies with errors first, each after some time. */
    private void fails(String command, int times, RuntimeException error) {
        AtomicInteger left = new AtomicInteger(times);
        replies.put(command, words -> {
            if (left.getAndDecrement() > 0) {
                time.pass(10 * Clock.MILLISECOND);
                throw error;
            }
            return usual(words);
        });
    }

    private static ServerException lost() {
        return new ServerException("the connection was lost", null);
    }

    @Test
    void aTickThatHasRunIsKeptUntilItsWindowEnds() throws Exception {
        for (int seconds : new int[] {0, 1, 7}) {
            margin = seconds * Clock.SECOND;
            HeldOnce[] body = new HeldOnce[1];
            Outcome outcome = locks().once("a", DAY).run(held -> {
                assertEquals(START / DAY.toNanos(), held.tick());
                assertFalse(held.recovered());
                assertFalse(isKept());
                held.check();
                body[0] = held;
            });
            assertEquals(Outcome.RAN, outcome);
            assertTrue(isKept(), "with a margin of " + seconds + " s the lease ends at " + leaseEnds);
            assertThrows(LockLostException.class, body[0]::check); // it has ended
            assertNull(body[0].hold().lost());
        }
        sent(3, 0);
        List<String> acquire = server.sent("LOCK.ACQUIRE").get(0);
        assertEquals("10000", acquire.get(3));
        assertEquals("DETAILS", acquire.get(acquire.size() - 1));
        assertFalse(acquire.contains("WAIT"));
    }

    @Test
    void aTickThatSomebodyElseRunsHasNoBody() throws Exception {
        replies.put("LOCK.ACQUIRE", words -> null);
        Once.Work<String, Exception> body = held -> "here";
        assertEquals(
                new Once.Result<>(Outcome.ELSEWHERE, null),
                locks().once("a", DAY).call(body));
        sent(0, 0);
        replies.clear();
        assertEquals(
                new Once.Result<>(Outcome.RAN, "here"), locks().once("a", DAY).call(body));
    }

    @Test
    void aPredecessorThatDiedInThisWindowIsReported() throws Exception {
        long halfADay = HALF_A_DAY / Clock.MILLISECOND;
        Map<Long, Outcome> outcomes =
                Map.of(500L, Outcome.RECOVERED, halfADay - 2000, Outcome.RECOVERED, halfADay, Outcome.RAN);
        for (Map.Entry<Long, Outcome> one : outcomes.entrySet()) {
            replies.put("LOCK.ACQUIRE", words -> {
                usual(words);
                return List.of(7L, one.getKey(), 3L, "bob");
            });
            Outcome outcome = locks().once("a", DAY)
                    .run(held -> assertEquals(one.getValue() == Outcome.RECOVERED, held.recovered()));
            assertEquals(one.getValue(), outcome);
        }
    }

    @Test
    void aBodyThatFailsLetsOthersRunTheTick() {
        IOException failure = new IOException("work");
        for (boolean reruns : new boolean[] {true, false}) {
            Once once = locks().once("a", DAY).rerun(reruns);
            assertSame(
                    failure,
                    assertThrows(
                            IOException.class,
                            () -> once.run(held -> {
                                throw failure;
                            })));
            assertThrows(
                    StackOverflowError.class,
                    () -> once.run(held -> {
                        throw new StackOverflowError();
                    }));
            assertThrows(
                    InterruptedException.class,
                    () -> once.run(held -> {
                        Thread.currentThread().interrupt();
                        Thread.sleep(60_000);
                    }));
        }
        sent(0, 6);
    }

    @Test
    void theSameLockWithinTheBodyIsAnError() throws Exception {
        Locks locks = locks();
        Once once = locks.once("a", DAY).lease(HOUR);
        once.run(held -> {
            int asked = server.count("TIME");
            pass(Duration.ofMinutes(2)); // TIME would be sent again
            assertThrows(LockMisuseException.class, () -> once.run(NOTHING));
            assertThrows(LockMisuseException.class, () -> locks.lock("a", DAY).acquire());
            assertEquals(asked, server.count("TIME"));
        });
        locks.lock("a", DAY).acquire().release();
    }

    @Test
    void aBodyMayReleaseItsLock() throws Exception {
        assertEquals(Outcome.RAN, locks().once("a", DAY).run(held -> assertTrue(held.release())));
        assertEquals(Outcome.RAN, locks().once("a", DAY).run(HeldOnce::close));
        sent(0, 2);
    }

    @Test
    void aLossDuringTheBodyIsThatOfAnyLock() {
        AtomicInteger reported = new AtomicInteger();
        Once once = locks().once("a", DAY).onLost(why -> reported.incrementAndGet());
        for (boolean stops : new boolean[] {true, false}) {
            assertThrows(
                    LockLostException.class,
                    () -> once.run(held -> {
                        held.hold().taken();
                        try {
                            Thread.sleep(60_000);
                        } catch (InterruptedException stopped) {
                            if (stops) {
                                throw stopped;
                            }
                        }
                    }));
            assertFalse(Thread.currentThread().isInterrupted());
        }
        sent(0, 0);
        assertEquals(2, server.count("LOCK.ACQUIRE"));
    }

    private static void isWrong(String text, org.junit.jupiter.api.function.Executable call) {
        LockArgumentException error = assertThrows(LockArgumentException.class, call);
        assertTrue(error.getMessage().contains("\"job\": " + text), error.getMessage());
    }

    @Test
    void badArgumentsAreRefused() {
        Locks locks = locks();
        Once shortest = locks.once("job", Duration.ofSeconds(10));
        Once minutely = locks.once("job", Duration.ofMinutes(1));
        isWrong("period is PT9.999S", () -> locks.once("job", Duration.ofMillis(9999)));
        isWrong("period is null", () -> locks.once("job", null));
        isWrong("period is", () -> locks.once("job", Duration.ofDays(3651)));
        isWrong("lease is PT5.001S", () -> shortest.lease(Duration.ofMillis(5001)));
        isWrong("lease is PT31S", () -> minutely.lease(Duration.ofSeconds(31)));
        isWrong("lease is PT0S", () -> minutely.lease(Duration.ZERO));
        isWrong("lease is null", () -> minutely.lease(null));
        isWrong("owner is", () -> minutely.owner(""));
        isWrong("maxHold is", () -> minutely.maxHold(Duration.ofMillis(-1)));
        assertThrows(LockArgumentException.class, () -> locks.once(null, DAY));
        locks.close();
        assertThrows(LockMisuseException.class, () -> minutely.run(NOTHING));
        assertEquals(0, server.count("TIME"));
    }

    @Test
    void theDefaultLeaseIsAQuarterOfAShortPeriod() throws Exception {
        Once shortest = locks().once("a", Duration.ofSeconds(10));
        shortest.run(NOTHING);
        shortest.lease(Duration.ofSeconds(5)).owner("bob").maxHold(HOUR).run(NOTHING);
        List<String> second = server.sent("LOCK.ACQUIRE").get(1);
        List<String> first = server.sent("LOCK.ACQUIRE").get(0);
        assertEquals("2500", first.get(3));
        assertTrue(
                first.get(first.indexOf("OWNER") + 1)
                        .endsWith(":" + ProcessHandle.current().pid()),
                first.toString());
        assertEquals("5000", second.get(3));
        assertTrue(second.containsAll(List.of("OWNER", "bob", "DETAILS")), second.toString());
        shortest.withoutOwner().run(NOTHING);
        assertFalse(server.sent("LOCK.ACQUIRE").get(2).contains("OWNER"));
    }

    @Test
    void anErrorOfTheClockIsTheCallersError() {
        Once once = locks().once("a", DAY);
        fails("TIME", 2, lost());
        assertThrows(LockNoServerException.class, () -> once.run(NOTHING));
        fails("TIME", 1, new ReplyException("NOPERM no"));
        assertThrows(LockDeniedException.class, () -> once.run(NOTHING));
        fails("TIME", 2, new ReplyException("LOADING soon"));
        assertThrows(LockUnavailableException.class, () -> once.run(NOTHING));
        assertEquals(0, server.count("LOCK.ACQUIRE"));
    }

    @Test
    void withoutRerunTheLeaseIsLongFromTheStart() throws Exception {
        for (int seconds : new int[] {1, 9}) {
            margin = seconds * Clock.SECOND;
            locks().once("a", DAY).rerun(false).run(held -> {
                assertTrue(isKept(), "with a margin of " + seconds + " s the lease ends at " + leaseEnds);
                pass(DAY.dividedBy(4)); // a renewal would be due
                Thread.sleep(1200); // the timer has looked at it
                held.check();
            });
            assertTrue(isKept());
            sent(seconds == 1 ? 0 : 1, 0); // the margin is unknown until the first grant
            ahead = START - time.monotonic();
        }
    }

    @Test
    void aLongLeaseFromASlowRequestIsCorrected() throws Exception {
        AtomicBoolean isSlow = new AtomicBoolean(true);
        ScriptedServer.Script slow = words -> {
            if (isSlow.getAndSet(words.get(0).equals("LOCK.ACQUIRE"))) {
                pass(Duration.ofSeconds(3));
            }
            return usual(words);
        };
        replies.put("LOCK.ACQUIRE", slow);
        replies.put("LOCK.EXTEND", slow);
        locks().once("a", DAY).rerun(false).run(held -> {
            assertTrue(isKept());
            sent(2, 0);
        });
        sent(2, 0);
    }

    @Test
    void aCallerThatIsInterruptedBeforeItsBodyHoldsNothing() throws Exception {
        for (String command : List.of("TIME", "LOCK.ACQUIRE", "LOCK.INFO")) {
            replies.clear();
            replies.put(command, words -> {
                Thread.currentThread().interrupt();
                return usual(words);
            });
            Locks locks = locks();
            assertThrows(
                    InterruptedException.class,
                    () -> locks.once("a", DAY).run(held -> {
                        throw new AssertionError("the body runs");
                    }));
            assertFalse(Thread.interrupted());
            int granted = server.count("LOCK.ACQUIRE");
            eventually(
                    "nothing is held",
                    () -> server.count("LOCK.RELEASE") + server.count("LOCK.CANCEL") == granted && leaseEnds == 0);
            leavesNothing(locks);
        }
        assertEquals(2, server.count("LOCK.ACQUIRE"));
    }

    private void leavesNothing(Locks locks) throws InterruptedException {
        Map<String, Object> nothing = Map.of("queue", 0, "slots", 0, "waiting", 0, "owed", 0, "holds", 0);
        TestServer.until(
                "nothing is left",
                () -> Census.of(List.of(locks)).entrySet().stream()
                        .allMatch(count ->
                                count.getValue().equals(nothing.getOrDefault(count.getKey(), count.getValue()))));
    }

    @Test
    void aCallerThatIsInterruptedAfterItsBodyKeepsTheTick() throws Exception {
        Thread me = Thread.currentThread();
        for (String command : List.of("", "TIME", "LOCK.EXTEND")) {
            leaseEnds = 0;
            replies.clear();
            Locks locks = locks();
            Outcome outcome = locks.once("a", DAY).lease(HOUR).run(held -> {
                pass(Duration.ofMinutes(11)); // TIME is asked again
                if (command.isEmpty()) {
                    me.interrupt();
                }
                AtomicBoolean isFirst = new AtomicBoolean(true);
                replies.put(command, words -> {
                    if (isFirst.getAndSet(false)) {
                        me.interrupt();
                        throw lost();
                    }
                    return usual(words);
                });
            });
            assertEquals(Outcome.RAN, outcome);
            assertTrue(Thread.interrupted(), "the interrupt is kept");
            eventually("it is kept", this::isKept);
        }
        assertEquals(0, server.count("LOCK.RELEASE"));
    }

    private record LongBody(Duration takes, boolean fails, boolean isKept) {}

    @Test
    void theTimeIsAskedAgainAfterALongBody() throws Exception {
        for (LongBody body : List.of(
                new LongBody(Duration.ofMinutes(9), false, false),
                new LongBody(Duration.ofMinutes(11), false, true),
                new LongBody(Duration.ofMinutes(11), true, false))) {
            int extended = server.count("LOCK.EXTEND");
            replies.clear();
            locks().once("a", DAY).lease(HOUR).run(held -> {
                pass(body.takes);
                ahead += 20 * Clock.SECOND; // its clock has drifted, or was set
                if (body.fails) {
                    fails("TIME", 2, new ReplyException("ERR no"));
                }
            });
            assertEquals(body.isKept, isKept(), body.toString());
            assertEquals(extended + 1, server.count("LOCK.EXTEND"));
            ahead = START - time.monotonic();
        }
    }

    /** Holds up the first EXTEND. */
    private final class Gate {
        final CountDownLatch isSent = new CountDownLatch(1);
        final CountDownLatch mayArrive = new CountDownLatch(1);

        Gate() {
            AtomicBoolean isFirst = new AtomicBoolean(true);
            replies.put("LOCK.EXTEND", words -> {
                if (isFirst.getAndSet(false)) {
                    isSent.countDown();
                    uninterrupted(mayArrive);
                }
                return usual(words);
            });
        }
    }

    private static void uninterrupted(CountDownLatch latch) {
        boolean wasInterrupted = false;
        while (true) {
            try {
                latch.await();
                break;
            } catch (InterruptedException interrupt) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void aRenewalInFlightCannotShortenTheLease() throws Exception {
        for (boolean isInterrupted : new boolean[] {false, true}) {
            int extended = server.count("LOCK.EXTEND");
            Gate gate = new Gate();
            Locks locks = locks();
            AtomicReference<Outcome> outcome = new AtomicReference<>();
            Thread caller = new Thread(() -> {
                try {
                    outcome.set(locks.once("a", DAY).lease(HOUR).run(held -> {
                        pass(Duration.ofMinutes(20).plusSeconds(1));
                        gate.isSent.await();
                    }));
                } catch (InterruptedException unexpected) {
                    Thread.currentThread().interrupt();
                }
            });
            caller.start();
            gate.isSent.await();
            TestServer.until("it waits", () -> caller.getState() == Thread.State.TIMED_WAITING);
            assertEquals(extended + 1, server.count("LOCK.EXTEND"), "the last EXTEND did not wait");
            if (isInterrupted) {
                caller.interrupt();
                caller.join(); // the keep continues in the background
            }
            gate.mayArrive.countDown();
            caller.join();
            assertEquals(Outcome.RAN, outcome.get());
            TestServer.until("it is kept", () -> server.count("LOCK.EXTEND") >= extended + (isInterrupted ? 3 : 2));
            leavesNothing(locks);
            assertTrue(isKept(), "the lease ends at " + leaseEnds);
            replies.clear();
            ahead = START - time.monotonic();
        }
        assertEquals(0, server.count("LOCK.RELEASE"));
    }

    @Test
    void anOverdueExtendIsInFlightUntilItsReplyArrives() throws Exception {
        CompletableFuture<Object> late = new CompletableFuture<>();
        AtomicBoolean isFirst = new AtomicBoolean(true);
        replies.put("LOCK.EXTEND", words -> {
            if (isFirst.getAndSet(false)) {
                throw new ScriptedServer.Overdue(late);
            }
            return usual(words);
        });
        Locks locks = locks();
        Thread me = Thread.currentThread();
        locks.once("a", DAY).run(held -> {
            assertThrows(LockNoServerException.class, () -> held.extend(Duration.ofMinutes(1)));
            me.interrupt(); // the end of the body does not wait for the reply
        });
        assertTrue(Thread.interrupted());
        assertTrue(isKept());
        int sent = server.count("LOCK.EXTEND");
        granted("60000"); // the server runs it only now
        assertFalse(isKept());
        late.complete(1L);
        TestServer.until("it is kept again", this::isKept);
        assertEquals(sent + 1, server.count("LOCK.EXTEND"));
        leavesNothing(locks);
    }

    @Test
    void anOverdueCopyOfTheLastExtendIsFollowedByAnother() throws Exception {
        CompletableFuture<Object> late = new CompletableFuture<>();
        AtomicBoolean isFirst = new AtomicBoolean(true);
        replies.put("LOCK.EXTEND", words -> {
            if (isFirst.getAndSet(false)) {
                throw new ScriptedServer.Overdue(late);
            }
            return usual(words);
        });
        Locks locks = locks();
        locks.once("a", DAY).run(NOTHING);
        String lease = server.sent("LOCK.EXTEND").get(0).get(4);
        eventually("the late copy is sent", () -> server.count("LOCK.EXTEND") == 3);
        pass(Duration.ofMinutes(1));
        granted(lease); // the server runs it only now
        assertFalse(isKept());
        late.complete(1L);
        TestServer.until("it is kept again", this::isKept);
        assertEquals(4, server.count("LOCK.EXTEND"));
        leavesNothing(locks);
    }

    @Test
    void noExtendIsSentOnceAHoldHasEnded() throws Exception {
        Locks locks = locks();
        Held held = locks.lock("a", HOUR).acquire();
        pass(Duration.ofMinutes(20).plusSeconds(1)); // the timer may find it due
        held.release();
        assertThrows(LockLostException.class, () -> held.extend(HOUR));
        Thread.sleep(1200);
        leavesNothing(locks);
        assertTrue(server.sent("LOCK.EXTEND").size() <= 1);
    }

    @Test
    void aSlowExtendIsSentAgainAtMostTwice() throws Exception {
        int[][] cases = {{0, 1}, {1, 2}, {2, 3}, {9, 3}};
        for (int[] one : cases) {
            int extended = server.count("LOCK.EXTEND");
            AtomicInteger slow = new AtomicInteger(one[0]);
            replies.put("LOCK.EXTEND", words -> {
                if (slow.getAndDecrement() > 0) {
                    pass(Duration.ofSeconds(1));
                }
                return usual(words);
            });
            locks().once("a", DAY).lease(HOUR).run(NOTHING);
            assertEquals(extended + one[1], server.count("LOCK.EXTEND"), Arrays.toString(one));
            assertEquals(one[0] < 3, isKept(), Arrays.toString(one));
            ahead = START - time.monotonic();
        }
    }

    @Test
    void aLostReplyToTheLastExtendIsFollowedByALateCopy() throws Exception {
        fails("LOCK.EXTEND", 1, lost());
        Locks locks = locks();
        locks.once("a", DAY).lease(HOUR).run(NOTHING);
        assertTrue(isKept());
        sent(2, 0);
        pass(Duration.ofSeconds(2));
        TestServer.until("the late copy is sent", () -> server.count("LOCK.EXTEND") == 3);
        leavesNothing(locks);
        assertTrue(isKept());
        sent(3, 0);
    }

    @Test
    void aRenewalThatFailedJustBeforeTheEndIsFollowedByALateCopy() throws Exception {
        Locks locks = locks();
        locks.once("a", DAY).lease(HOUR).run(held -> {
            fails("LOCK.EXTEND", 1, lost());
            assertThrows(LockNoServerException.class, () -> held.extend(HOUR));
        });
        assertTrue(isKept());
        sent(2, 0);
        pass(Duration.ofSeconds(2));
        TestServer.until("the late copy is sent", () -> server.count("LOCK.EXTEND") == 3);
        assertTrue(isKept());
    }

    @Test
    void aTickIsKeptInTheBackgroundOnABusyServer() throws Exception {
        fails("LOCK.EXTEND", 6, new ReplyException("BUSY running a script"));
        Locks locks = locks(Duration.ofMillis(20));
        assertEquals(Outcome.RAN, locks.once("a", DAY).lease(HOUR).run(NOTHING));
        assertFalse(isKept(), "it waited for the server");
        eventually("it is kept", this::isKept);
        leavesNothing(locks);
        assertEquals(0, server.count("LOCK.RELEASE"));
    }

    @Test
    void anErrorThatIsNotRetriedEndsTheKeep() throws Exception {
        AtomicInteger busy = new AtomicInteger(4);
        replies.put("LOCK.EXTEND", words -> {
            time.pass(10 * Clock.MILLISECOND);
            throw new ReplyException(
                    busy.getAndDecrement() > 0 ? "BUSY running a script" : "GRACE lease is longer than the grace");
        });
        Locks locks = locks(Duration.ofMillis(20));
        assertEquals(Outcome.RAN, locks.once("a", DAY).lease(HOUR).run(NOTHING));
        eventually("the server refuses", () -> busy.get() < 0);
        leavesNothing(locks);
        int extended = server.count("LOCK.EXTEND");
        assertThrows(
                LockUnavailableException.class,
                () -> locks.once("a", DAY).lease(HOUR).run(NOTHING));
        sent(extended + 1, 0);
    }

    @Test
    void aLockThatHasExpiredOnTheServerWasNotHeldToTheEnd() {
        replies.put("LOCK.EXTEND", words -> 0L);
        assertThrows(
                LockLostException.class,
                () -> locks().once("a", DAY).lease(HOUR).run(NOTHING));
        sent(1, 0);
    }

    @Test
    void aLockWhoseWindowIsOverIsReleased() throws Exception {
        Once once = locks().once("a", DAY).lease(DAY.dividedBy(2));
        once.run(held -> {
            ahead += HALF_A_DAY;
            pass(Duration.ofMinutes(11)); // so that TIME is asked again
        });
        sent(0, 1);
    }

    @Test
    void aClosedManagerKeepsTheTick() throws Exception {
        Locks locks = locks();
        locks.once("a", DAY).run(held -> locks.close());
        assertTrue(isKept());
        assertEquals(0, server.count("LOCK.RELEASE"));
    }

    @Test
    void hooksReportTheEndOfAKeptHold() throws Exception {
        List<String> called = new ArrayList<>();
        Hooks hooks = new Hooks() {
            @Override
            public void granted(String key, Duration waited) {
                called.add("granted");
            }

            @Override
            public void released(String key, Duration held, boolean inTime) {
                called.add("released " + held.toSeconds() + " " + inTime);
            }
        };
        Locks.Builder options = Locks.builder(server).hooks(hooks);
        options.clock = new SystemClock(time);
        try (Locks locks = options.build()) {
            locks.once("a", DAY).run(held -> pass(Duration.ofSeconds(3)));
        }
        assertEquals(List.of("granted", "released 3 true"), called);
    }
}
