package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.spi.Slots;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** What is asked for, and what the answers mean. */
class RequestTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private static Request request(String... keys) {
        Request.Form form = keys.length > 1 ? Request.Form.MANY : Request.Form.ONE;
        return new Request(Arrays.stream(keys).map(Words::bytes).toList(), LEASE, form, false, null);
    }

    private static String said(byte[][] words) {
        return Arrays.stream(words).map(Words::text).collect(Collectors.joining(" "));
    }

    @Test
    void theWordsOfACommandAreInTheirOrder() {
        Request full = request("a").with(copy -> {
            copy.setOwner("me");
            copy.isSession = true;
            copy.wantsDetails = true;
        });
        assertEquals(
                "LOCK.ACQUIRE a PX 30000 WAIT 1500 ID 7 NOTIFY c OWNER me SESSION DETAILS",
                said(full.acquire(Words.bytes("7"), 1500 * Clock.MILLISECOND, "c")));
        assertEquals("LOCK.MACQUIRE 2 a b PX 30000 ID 7", said(request("a", "b").acquire(Words.bytes("7"), 0, "c")));
        assertEquals("LOCK.MRELEASE 2 a b 9", said(request("a", "b").release(9)));
        assertEquals("LOCK.EXTEND a 9 PX 1", said(request("a").extend(9, 1)));
        assertEquals("PX 30000 ID 7", said(request("a").scripted(Words.bytes("7"))));
    }

    @Test
    void aWaitWithoutAnEndIsAsLongAsTheServerAllows() {
        assertEquals(
                "LOCK.ACQUIRE a PX 30000 WAIT 3600000 ID 7 NOTIFY c",
                said(request("a").acquire(Words.bytes("7"), Clock.NEVER, "c")));
    }

    @Test
    void aBadArgumentIsNamedWithTheLock() {
        for (Duration bad :
                List.of(Duration.ZERO, Duration.ofSeconds(-1), Duration.ofDays(3651), Duration.ofNanos(999_999))) {
            LockArgumentException error = assertThrows(
                    LockArgumentException.class,
                    () -> new Request(List.of(Words.bytes("a")), bad, Request.Form.ONE, false, null));
            assertTrue(error.getMessage().startsWith("the lock \"a\": lease is "), error.getMessage());
            assertEquals("\"a\"", error.key());
        }
        assertThrows(LockArgumentException.class, () -> request("a").with(copy -> copy.setWait(Duration.ofMillis(-1))));
        assertThrows(LockArgumentException.class, () -> request("a").with(copy -> copy.setReplicas(-1, LEASE)));
        assertThrows(LockArgumentException.class, () -> request("a").with(copy -> copy.setOwner("\u00e4")));
    }

    @Test
    void keysAreShownSoThatTheyCanBeRead() {
        assertEquals("\"a\", \"b \\\"c\\\"\"", Words.shown(List.of(Words.bytes("a"), Words.bytes("b \"c\""))));
        assertEquals("\"\\x00\u00ff\"", Words.shown(List.of(new byte[] {0, (byte) 0xff})));
        assertTrue(Words.shown(List.of(new byte[4000])).length() < 1000);
    }

    @Test
    void slotsAreThoseOfTheServer() {
        assertEquals(12739, Slots.of(Words.bytes("123456789")));
        assertEquals(Slots.of(Words.bytes("user1000")), Slots.of(Words.bytes("{user1000}.following")));
        assertEquals(Slots.of(Words.bytes("{}a")), Slots.of(Words.bytes("{}a")));
        assertFalse(Slots.of(Words.bytes("{}a")) == Slots.of(new byte[0]), "empty braces do not count");
    }

    @Test
    void errorsOfTheServerHaveAKind() {
        assertTrue(Errors.typed(new ReplyError("NOPERM x"), "a", 0) instanceof LockDeniedException);
        assertTrue(Errors.typed(new ReplyError("DEADLOCK x"), "a", 0) instanceof LockDeadlockException);
        assertTrue(
                Errors.typed(new ReplyError("ERR unknown command 'LOCK.ACQUIRE'"), "a", 0)
                        instanceof LockUnavailableException);
        assertTrue(Errors.typed(new ReplyError("WRONGTYPE x"), "a", 0) instanceof LockArgumentException);
        assertTrue(Errors.typed(new ConnectionLost("x"), "a", 0) instanceof LockNoServerException);
    }

    @Test
    void whatMayPassIsTriedAgainAndUnavailableOrTimedOutInTheEnd() {
        for (String passing : List.of(
                "LOADING",
                "BUSY",
                "MISCONF",
                "TRYAGAIN",
                "CLUSTERDOWN",
                "MASTERDOWN",
                "READONLY",
                "MOVED",
                "ASK",
                "UNBLOCKED",
                "OOM",
                "NOREPLICAS",
                "GRACE this",
                "BUSYLOCKS lock.max-waiters",
                "BUSYLOCKS attempts")) {
            ReplyError reply = new ReplyError(passing + " says the server");
            assertTrue(Errors.mayPass(reply), passing);
            assertTrue(Errors.typed(reply, "a", 0) instanceof LockTimeoutException, passing);
            assertTrue(Errors.typed(reply, "a", Errors.NO_WAIT) instanceof LockUnavailableException, passing);
        }
        for (String lasting : List.of("GRACE lease", "BUSYLOCKS 64 waits", "CLOCK")) {
            ReplyError reply = new ReplyError(lasting + " says the server");
            assertFalse(Errors.mayPass(reply), lasting);
            assertTrue(Errors.typed(reply, "a", 0) instanceof LockUnavailableException, lasting);
        }
    }

    /** All kinds of errors survive the way to another process, and have a stable code. */
    @Test
    void errorsCanBeSerialized() throws Exception {
        Throwable cause =
                new ConnectionLost("no reply", new java.io.IOException("reset"), false, new CompletableFuture<>());
        List<LockException> all = List.of(
                new LockRefusedException("a", "why", cause),
                new LockTimeoutException("a", "why", cause),
                new LockLostException("a", "why", cause),
                new LockDeadlockException("a", "why", cause),
                new LockUnavailableException("a", "why", cause),
                new LockDeniedException("a", "why", cause),
                new LockNoServerException("a", "why", cause),
                new LockArgumentException("a", "why", cause),
                new LockMisuseException("a", "why", new ReplyError("ERR x")));
        List<String> codes = new ArrayList<>();
        for (LockException error : all) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
                out.writeObject(error);
            }
            try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
                LockException read = (LockException) in.readObject();
                assertEquals(error.getClass(), read.getClass());
                assertEquals(
                        error.getMessage() + error.key() + error.code(), read.getMessage() + read.key() + read.code());
                assertEquals(error.getCause().getMessage(), read.getCause().getMessage());
                codes.add(read.code());
            }
        }
        assertEquals(
                List.of(
                        "refused",
                        "timeout",
                        "lost",
                        "deadlock",
                        "unavailable",
                        "denied",
                        "no_server",
                        "argument",
                        "misuse"),
                codes);
    }
}
