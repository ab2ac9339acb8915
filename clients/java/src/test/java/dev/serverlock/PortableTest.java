package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.AsyncNode;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.ServerException;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The script calls to a server without the module, in cases that no real server produces on demand. */
class PortableTest {
    private static final Duration LEASE = Duration.ofSeconds(300);
    private static final Duration WAIT = Duration.ofMinutes(1);
    private static final ReplyException NO_RIGHT = new ReplyException("NOPERM No permissions to access a key");
    private static final ReplyException MOVES = new ReplyException("TRYAGAIN Multiple keys request");

    private final Fake fake = new Fake();
    private final Locks locks = Locks.builder(fake).warnWithoutModule(false).build();

    @AfterEach
    void close() {
        locks.close();
    }

    /** Has no module, and replies to each of the script's functions as the test demands. */
    private static final class Fake implements Server, AsyncNode {
        /** Function, number of keys, and all arguments that follow the keys. */
        private record Script(String function, int keys, String args) {
            boolean notifies() {
                return args.contains("NOTIFY");
            }
        }

        private final List<Script> scripts = new CopyOnWriteArrayList<>();
        private volatile BiFunction<String, Integer, Object> answer =
                (function, keys) -> function.startsWith("lock_acquire") ? 12L : 1L;
        private volatile boolean mayNotSubscribe;
        /** How many more times the module replies that the lock is taken. Then it is unloaded. */
        private final AtomicInteger moduleReplies = new AtomicInteger();
        /** Completes when SUBSCRIBE gets its reply. */
        private volatile CompletableFuture<Void> subscribed = CompletableFuture.completedFuture(null);

        @Override
        public AsyncNode node(byte[] key) {
            return this;
        }

        @Override
        public boolean isAsync() {
            return true;
        }

        @Override
        public CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
            exchange(calls, timeout);
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void exchange(List<Call> calls, Duration timeout) {
            for (Call call : calls) {
                try {
                    call.value = reply(call.words);
                } catch (RuntimeException error) {
                    call.error = error;
                }
            }
        }

        private Object reply(byte[][] words) {
            String name = Words.text(words[0]);
            if (name.equals("LOCK.ACQUIRE") && moduleReplies.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
                boolean notifies = Arrays.stream(words).map(Words::text).anyMatch("NOTIFY"::equals);
                return notifies ? Words.bytes("WAITING") : null;
            }
            if (name.startsWith("LOCK.")) {
                throw new ReplyException("ERR unknown command '" + name + "'");
            }
            if (!name.startsWith("EVAL")) {
                return Words.bytes("maxmemory_policy:noeviction");
            }
            int keys = Integer.parseInt(Words.text(words[2]));
            StringBuilder args = new StringBuilder();
            for (int i = keys + 4; i < words.length; i++) {
                args.append(Words.text(words[i])).append(' ');
            }
            String function = Words.text(words[keys + 3]);
            scripts.add(new Script(function, keys, args.toString()));
            Object reply = answer.apply(function, keys);
            if (reply instanceof RuntimeException error) {
                throw error;
            }
            return reply;
        }

        /** Whether the newest script names the channel, and so joins the queue. */
        boolean lastNotifies() {
            return scripts.get(scripts.size() - 1).notifies();
        }

        /** The numbers of keys passed to a function. */
        List<Integer> keysOf(String function) {
            return scripts.stream()
                    .filter(script -> script.function.equals(function))
                    .map(Script::keys)
                    .toList();
        }

        @Override
        public boolean isShared() {
            return false;
        }

        @Override
        public Connection dial(Duration timeout) {
            if (moduleReplies.get() == 0) {
                throw new ServerException("no connection", null);
            }
            return new Idle() {
                @Override
                public Object call(byte[][] words, Duration timeout) throws InterruptedException {
                    Object reply = reply(words);
                    long wait = Long.parseLong(Words.text(words[5]));
                    assertThrows(TimeoutException.class, () -> ended.get(wait, TimeUnit.MILLISECONDS));
                    return reply;
                }
            };
        }

        @Override
        public WatchedConnection watch(Duration timeout) {
            throw new ServerException("no connection", null);
        }

        @Override
        public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
            if (mayNotSubscribe) {
                throw new ReplyException("NOPERM This user has no permissions to run the 'subscribe' command");
            }
            subscribed.join();
            return new Idle();
        }
    }

    /** A connection that receives no messages. */
    private static class Idle implements Connection {
        final CompletableFuture<Void> ended = new CompletableFuture<>();

        @Override
        public Object call(byte[][] words, Duration timeout) throws InterruptedException {
            return Words.bytes("PONG");
        }

        @Override
        public boolean isOpen() {
            return !ended.isDone();
        }

        @Override
        public void onEnd(Runnable callback) {
            ended.thenRun(callback);
        }

        @Override
        public void close() {
            ended.complete(null);
        }
    }

    @Test
    void aQueueThatTheUserMayNotTouchIsLeftOutForAWhile() throws Exception {
        fake.answer = (function, keys) -> keys == 2 ? NO_RIGHT : function.equals("lock_acquire") ? 12L : 1L;
        Held held = locks.lock("a", LEASE).acquire();
        held.extend(LEASE);
        assertTrue(held.release());
        assertTrue(locks.lock("b", LEASE).waiting(WAIT).acquire().release());
        assertEquals(List.of(2, 1, 1), fake.keysOf("lock_acquire"));
        assertEquals(List.of(1), fake.keysOf("lock_extend"));
        assertEquals(List.of(1, 1), fake.keysOf("lock_release"));
        assertThrows(
                LockDeniedException.class,
                () -> locks.shared("c", LEASE).waiting(WAIT).acquire());
    }

    @Test
    void aHoldOutlivesTheLossOfPermissionToUseItsQueue() throws Exception {
        Held held = locks.lock("a", LEASE).acquire();
        fake.answer = (function, keys) -> keys == 2 ? NO_RIGHT : 1L;
        held.extend(LEASE);
        assertTrue(held.release());
        assertEquals(List.of(2, 1), fake.keysOf("lock_extend"));
        assertEquals(List.of(1), fake.keysOf("lock_release"));
        Held second = locks.lock("a", LEASE).acquire();
        fake.answer = (function, keys) -> NO_RIGHT;
        assertThrows(LockDeniedException.class, () -> second.extend(LEASE));
        assertThrows(LockDeniedException.class, second::release);
    }

    @Test
    void aQueueThatMovesIsLeftOutOnce() throws Exception {
        Held held = locks.lock("a", LEASE).acquire();
        fake.answer = (function, keys) -> keys == 2 ? MOVES : 1L;
        held.extend(LEASE);
        fake.answer = (function, keys) -> 1L;
        held.extend(LEASE);
        fake.answer = (function, keys) -> keys == 2 ? MOVES : 1L;
        assertTrue(held.release());
        assertEquals(List.of(2, 1, 2), fake.keysOf("lock_extend"));
        assertEquals(List.of(2, 1), fake.keysOf("lock_release"));
    }

    private static Object granted(boolean isGranted) {
        return isGranted ? 12L : null;
    }

    @Test
    void anAttemptWithoutMessagesPollsPastTheQueueAndNotifiesIt() throws Exception {
        fake.mayNotSubscribe = true;
        fake.answer = (function, keys) -> function.equals("lock_release") ? 1L : granted(keys == 1);
        assertTrue(locks.lock("a", LEASE).waiting(WAIT).acquire().release());
        assertEquals(List.of(2), fake.keysOf("lock_release"));
        assertThrows(
                LockRefusedException.class,
                () -> locks.lock("a", LEASE).acquire(),
                "without a wait, an attempt does not go past the queue");
    }

    @Test
    void theScriptSaysWhenToAskAgain() {
        fake.answer = (function, keys) -> fake.lastNotifies() ? List.of(Words.bytes("WAITING"), 100L) : null;
        assertThrows(
                LockTimeoutException.class,
                () -> locks.lock("a", LEASE).waiting(Duration.ofSeconds(4)).acquire());
        assertTrue(fake.keysOf("lock_acquire").size() >= 6, "more often than the default, once in five seconds");
        assertEquals(List.of(2), fake.keysOf("lock_cancel"));
    }

    /** A release would find nobody subscribed, and pass over an attempt that is in the queue already. */
    private void joinsTheQueueOnceItIsSubscribed(Callable<Held> attempt) throws Exception {
        fake.subscribed = new CompletableFuture<>();
        fake.answer = (function, keys) -> function.equals("lock_release") ? 1L : granted(fake.lastNotifies());
        FutureTask<Held> waiting = new FutureTask<>(attempt);
        Thread caller = new Thread(waiting, "caller");
        caller.setDaemon(true);
        caller.start();
        TestServer.until(
                "it asks again and again",
                () -> waiting.isDone() || fake.keysOf("lock_acquire").size() >= 3);
        assertFalse(waiting.isDone());
        assertFalse(fake.lastNotifies());
        fake.subscribed.complete(null);
        assertTrue(waiting.get().release());
        assertEquals(1, fake.scripts.stream().filter(Fake.Script::notifies).count());
    }

    @Test
    void anAttemptJoinsTheQueueOnceItIsSubscribed() throws Exception {
        joinsTheQueueOnceItIsSubscribed(
                () -> locks.lock("a", LEASE).waiting(WAIT).acquire());
    }

    @Test
    void anAttemptWithAFutureJoinsTheQueueOnceItIsSubscribed() throws Exception {
        joinsTheQueueOnceItIsSubscribed(
                () -> locks.lock("a", LEASE).waiting(WAIT).acquireAsync().get());
    }

    /** It has asked the module once, and has waited in the module's queue for one piece. */
    @Test
    void anAttemptThatWaitedForTheModuleJoinsTheQueueOnceItIsSubscribed() throws Exception {
        fake.moduleReplies.set(2);
        anAttemptJoinsTheQueueOnceItIsSubscribed();
    }

    /** It has asked the module once, and has joined the module's queue. */
    @Test
    void anAttemptWithAFutureThatWaitedForTheModuleJoinsTheQueueOnceItIsSubscribed() throws Exception {
        fake.moduleReplies.set(2);
        anAttemptWithAFutureJoinsTheQueueOnceItIsSubscribed();
    }

    @Test
    void anAttemptWhoseCopyGotNoReplyIsCancelledTwice() throws Exception {
        fake.answer = (function, keys) -> function.equals("lock_cancel") ? 0L : new ServerException("closed", null);
        assertThrows(LockNoServerException.class, () -> locks.lock("a", LEASE).acquire());
        TestServer.until("it is cancelled", () -> !fake.keysOf("lock_cancel").isEmpty());
        TestServer.until(
                "it is cancelled again", () -> fake.keysOf("lock_cancel").size() == 2);
        fake.answer = (function, keys) -> function.equals("lock_cancel") ? 0L : MOVES;
        assertThrows(
                LockUnavailableException.class, () -> locks.shared("a", LEASE).acquire());
        Thread.sleep(2500);
        assertEquals(2, fake.keysOf("lock_cancel").size(), "an error reply leaves nothing to cancel");
    }

    @Test
    void callsForSeveralKeysOrHoldersNameTheQueues() throws Exception {
        assertFalse(locks.allOf(List.of("a", "b"), LEASE).acquire().release(), "one of two was released");
        assertEquals(List.of(4), fake.keysOf("lock_acquire_all"));
        assertEquals(List.of(4), fake.keysOf("lock_release_all"));
        assertTrue(locks.limit("a", 3, LEASE).acquire().release());
        assertTrue(fake.scripts.get(fake.scripts.size() - 2).args.contains("LIMIT 3"));
        LockException error = assertThrows(
                LockUnavailableException.class, () -> locks.shared("a{b", LEASE).acquire());
        assertTrue(error.getMessage().contains("hash tag"), error.getMessage());
        assertTrue(locks.lock("a{b", LEASE).acquire().release());
        assertEquals(1, fake.keysOf("lock_acquire").get(1));
    }
}
