package dev.serverlock.internal.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.LockArgumentException;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Owner;
import dev.serverlock.internal.wire.Words;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Command words and option checks. */
class RequestTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private static Request request(String... keys) {
        Request.Form form = keys.length > 1 ? Request.Form.MANY : Request.Form.ONE;
        return new Request(Arrays.stream(keys).map(Words::bytes).toList(), LEASE, form, false, null).withoutOwner();
    }

    private static String text(byte[][] words) {
        return Arrays.stream(words).map(Words::text).collect(Collectors.joining(" "));
    }

    @Test
    void commandWordsAreInOrder() {
        Request full = request("a").withOwner("me").withSession().withDetails();
        assertEquals(
                "LOCK.ACQUIRE a PX 30000 WAIT 1500 ID 7 NOTIFY c OWNER me SESSION DETAILS",
                text(full.acquire(Words.bytes("7"), 1500 * Clock.MILLISECOND, "c")));
        assertEquals("LOCK.MACQUIRE 2 a b PX 30000 ID 7", text(request("a", "b").acquire(Words.bytes("7"), 0, "c")));
        assertEquals("LOCK.MRELEASE 2 a b 9", text(request("a", "b").release(9)));
        assertEquals("LOCK.EXTEND a 9 PX 1", text(request("a").extend(9, 1)));
        assertEquals("PX 30000 ID 7", text(request("a").scripted(Words.bytes("7"), 0, null)));
    }

    @Test
    void theOwnerIsThisProcessUnlessItIsNamedOrSwitchedOff() {
        Request plain = new Request(List.of(Words.bytes("a")), LEASE, Request.Form.ONE, false, null);
        String words = text(plain.acquire(Words.bytes("7"), 0, null));
        assertEquals("LOCK.ACQUIRE a PX 30000 ID 7 OWNER " + Owner.hostAndPid(), words);
        assertEquals(
                words.replace(Owner.hostAndPid(), "me"),
                text(plain.withOwner("me").acquire(Words.bytes("7"), 0, null)));
        Request bare = plain.withOwner("me").withoutOwner();
        assertEquals("LOCK.ACQUIRE a PX 30000 ID 7", text(bare.acquire(Words.bytes("7"), 0, null)));
        assertThrows(LockArgumentException.class, () -> plain.withOwner(null));
    }

    @Test
    void anEndlessWaitIsAsLongAsTheServerAllows() {
        assertEquals(
                "LOCK.ACQUIRE a PX 30000 WAIT 3600000 ID 7 NOTIFY c",
                text(request("a").acquire(Words.bytes("7"), Clock.NEVER, "c")));
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
        assertThrows(LockArgumentException.class, () -> request("a").withWaiting(Duration.ofMillis(-1)));
        assertThrows(LockArgumentException.class, () -> request("a").withReplicas(-1, LEASE));
        assertThrows(LockArgumentException.class, () -> request("a").withOwner("\u00e4"));
    }
}
