package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.Counts;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import dev.serverlock.spi.Server;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The session locks of a thread share a connection, which outlives attempts that fail. */
class SessionsTest {
    private static final Duration LONG = Duration.ofMinutes(1);

    private static TestServer server;
    private static RedisClient lettuce;
    private static Server lettuces;
    private static final ScheduledExecutorService TIMER = Executors.newSingleThreadScheduledExecutor();

    private Locks locks;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        RedisURI uri = RedisURI.create("redis://127.0.0.1:" + server.port);
        lettuce = RedisClient.create(uri);
        lettuces = LettuceServer.of(lettuce, uri, lettuce.connect());
    }

    @AfterAll
    static void end() throws Exception {
        TIMER.shutdownNow();
        lettuce.shutdown();
        server.close();
    }

    @AfterEach
    void close() {
        locks.close();
    }

    private void open(String library, Duration timeout) {
        locks = Locks.builder(library.equals("jedis") ? JedisServer.of(server.client) : lettuces)
                .timeout(timeout)
                .build();
    }

    private ServerLock session(String key) {
        return locks.lock(key, LONG).session();
    }

    private int sessions() {
        return Counts.of(locks.engine).get("sessions");
    }

    private static String sessionOf(String key) {
        return server.info(key, "session");
    }

    private static void waits(String key, int count) throws InterruptedException {
        TestServer.until(count + " wait", () -> server.info(key, "waiters").equals("" + count));
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void anInterruptedWaitKeepsTheOtherLocksOfTheSession(String library) throws Exception {
        open(library, Duration.ofSeconds(5));
        Object token = server.call("LOCK.ACQUIRE", "b", "PX", 600_000);
        Held held = session("a").acquire();
        String shared = sessionOf("a");
        Random dice = new Random(11);
        Thread me = Thread.currentThread();
        ServerLock wanted = session("b").waiting(LONG);
        for (int turn = 0; turn < 15; turn++) {
            TIMER.schedule(me::interrupt, dice.nextInt(50), TimeUnit.MILLISECONDS);
            assertThrows(InterruptedException.class, wanted::acquire);
        }
        waits("b", 0);
        held.check();
        assertEquals(shared, sessionOf("a"));
        server.call("LOCK.RELEASE", "b", token);
        TestServer.until("the session is free again", () -> shares(wanted, shared));
        assertTrue(held.release());
        TestServer.until("no session is left", () -> sessions() == 0);
    }

    private static boolean shares(ServerLock lock, String session) {
        try {
            Held held = lock.acquire();
            boolean isShared = sessionOf("b").equals(session);
            assertTrue(held.release());
            return isShared;
        } catch (InterruptedException unexpected) {
            throw new AssertionError(unexpected);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void aThreadCannotWaitForItself(String library) throws Exception {
        open(library, Duration.ofSeconds(5));
        Held kept = session("c").acquire(); // in a scope the package refuses it
        assertThrows(LockDeadlockException.class, session("c").waiting(LONG)::acquire);
        kept.check();
        assertTrue(kept.release());
        assertEquals(0, sessions());
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void aReplyThatDoesNotComeInTimeEndsTheSession(String library) throws Exception {
        open(library, Duration.ofMillis(500));
        String key = "held over " + library; // a lock outlives its session by the server's margin
        Held held = session(key).acquire();
        server.call("LOCK.ACQUIRE", "e", "PX", 600_000);
        server.signal("STOP");
        try {
            TIMER.schedule(Thread.currentThread()::interrupt, 200, TimeUnit.MILLISECONDS);
            assertThrows(InterruptedException.class, session("e").waiting(Duration.ofSeconds(2))::acquire);
            TestServer.until("the lock is lost", () -> held.left().isZero());
            assertEquals(0, sessions());
        } finally {
            server.signal("CONT");
        }
        server.call("DEL", "e");
        TestServer.until(
                "it ends with its connection", () -> !server.info(key, "state").equals("held"));
    }

    @Test
    void aDroppedHoldLeavesItsConnectionToTheOthers() throws Exception {
        open("jedis", Duration.ofSeconds(5));
        WeakReference<Held> dropped = new WeakReference<>(session("f").acquire());
        Held other = session("g").acquire();
        String shared = sessionOf("f");
        TestServer.until("it is collected", () -> {
            System.gc();
            return dropped.get() == null;
        });
        other.check();
        assertEquals(shared, sessionOf("g"));
        assertTrue(other.release());
        TestServer.until(
                "the dropped lock ends with its connection",
                () -> !server.info("f", "state").equals("held"));
    }

    @Test
    void anAttemptThatFindsAReplicaClosesItsSession() throws Exception {
        open("jedis", Duration.ofSeconds(5));
        Held held = session("h").acquire();
        server.call("REPLICAOF", "127.0.0.1", "1");
        try {
            assertThrows(LockTimeoutException.class, session("i").waiting(Duration.ofMillis(300))::acquire);
        } finally {
            server.call("REPLICAOF", "NO", "ONE");
        }
        assertThrows(LockLostException.class, held::check);
        assertEquals(0, sessions());
    }

    @Test
    void closingTheManagerEndsTheSessionsWithAnAttempt() throws Exception {
        open("jedis", Duration.ofSeconds(5));
        server.call("LOCK.ACQUIRE", "j", "PX", 600_000);
        Held idle = session("k").acquire();
        CompletableFuture<Held> first = new CompletableFuture<>();
        CompletableFuture<Held> second = new CompletableFuture<>();
        new Thread(() -> {
                    try {
                        first.complete(session("l").acquire());
                        second.complete(session("j").waiting(LONG).acquire());
                    } catch (Throwable error) {
                        second.completeExceptionally(error);
                    }
                })
                .start();
        Held lost = first.get(60, TimeUnit.SECONDS);
        waits("j", 1);
        locks.close();
        ExecutionException ended = assertThrows(ExecutionException.class, () -> second.get(60, TimeUnit.SECONDS));
        assertTrue(ended.getCause() instanceof LockMisuseException, ended.toString());
        TestServer.until("its other lock is lost", () -> lost.left().isZero());
        waits("j", 0);
        idle.check();
        assertTrue(idle.release());
        assertEquals(0, sessions());
    }

    @Test
    void aLostLockDoesNotKeepItsConnection() throws Exception {
        open("jedis", Duration.ofSeconds(5));
        Held held = session("m").acquire();
        server.call("DEL", "m");
        assertThrows(LockLostException.class, held::verify);
        TestServer.until("its connection is closed", () -> sessions() == 0);
    }
}
