package dev.serverlock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.ReplyException;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;

/** What the server in memory replies in cases that a healthy engine rarely causes. */
class TableTest {
    private final ManualClock clock = new ManualClock();
    private final Commands commands = new Commands(clock, new Table(clock));
    private final MemoryConnection connection = new MemoryConnection(commands, message -> {});

    private Object call(String command) {
        try {
            Object reply = send(command).join();
            return reply instanceof byte[] bytes ? Words.text(bytes) : reply;
        } catch (CompletionException error) {
            throw (RuntimeException) error.getCause();
        }
    }

    private CompletableFuture<Object> send(String command) {
        return connection.send(
                Arrays.stream(command.split(" ")).map(Words::bytes).toArray(byte[][]::new));
    }

    private String state(String key) {
        return Words.text(Words.field(call("LOCK.INFO " + key), "state"));
    }

    private void advance(long nanos) {
        clock.advance(Clock.duration(nanos));
    }

    @Test
    void aLateCopyOfACancelledAttemptGetsNothing() {
        assertEquals(0L, call("LOCK.CANCEL report 7"));
        assertNull(call("LOCK.ACQUIRE report PX 1000 ID 7"));
        advance(Key.PLACE);
        assertNotNull(call("LOCK.ACQUIRE report PX 1000 ID 7"));
    }

    @Test
    void aSecondCopyGetsTheSameGrantAndNoShorterLease() {
        Object token = call("LOCK.ACQUIRE report PX 9000 ID 7");
        assertEquals(token, call("LOCK.ACQUIRE report PX 1000 ID 7"));
        assertEquals(9000L, call("LOCK.CHECK report " + token));
    }

    @Test
    void aGrantThatNobodyClaimsIsPassedOn() {
        Object token = call("LOCK.ACQUIRE report PX 1000 ID 1");
        assertEquals("WAITING", call("LOCK.ACQUIRE report PX 1000 ID 2 WAIT 60000 NOTIFY nobody"));
        assertEquals(1L, call("LOCK.RELEASE report " + token));
        assertEquals("held", state("report"));
        advance(2 * Clock.SECOND);
        assertEquals("free", state("report"));
    }

    @Test
    void aNewerCopyReplacesOneThatBlocksAndKeepsItsPlace() {
        Object token = call("LOCK.ACQUIRE report PX 60000 ID 1");
        CompletableFuture<Object> older = send("LOCK.ACQUIRE report PX 60000 ID 2 WAIT 60000");
        CompletableFuture<Object> other = send("LOCK.ACQUIRE report PX 60000 ID 3 WAIT 60000");
        CompletableFuture<Object> newer = send("LOCK.ACQUIRE report PX 60000 ID 2 WAIT 60000");
        assertInstanceOf(
                ReplyException.class,
                assertThrows(CompletionException.class, older::join).getCause());
        assertEquals(1L, call("LOCK.RELEASE report " + token));
        assertEquals(false, other.isDone());
        assertNotNull(newer.join());
    }

    @Test
    void theEndOfAConnectionEndsItsWaitsAndAMarginLaterItsSessionLocks() {
        call("LOCK.ACQUIRE report PX 60000 ID 1 SESSION");
        call("LOCK.ACQUIRE other PX 60000 ID 2");
        CompletableFuture<Object> waits = send("LOCK.ACQUIRE other PX 60000 ID 3 WAIT 60000");
        connection.close();
        assertThrows(CompletionException.class, waits::join);
        MemoryConnection next = new MemoryConnection(commands, message -> {});
        CompletableFuture<Object> successor = next.send(new byte[][] {
            Words.bytes("LOCK.ACQUIRE"),
            Words.bytes("report"),
            Words.bytes("PX"),
            Words.bytes("1000"),
            Words.bytes("ID"),
            Words.bytes("4"),
            Words.bytes("WAIT"),
            Words.bytes("60000")
        });
        assertEquals(false, successor.isDone());
        clock.advance(Duration.ofSeconds(1));
        assertNotNull(successor.join());
    }

    @Test
    void aLeaseThatHasEndedKeepsOthersOutForAMargin() {
        Object token = call("LOCK.ACQUIRE report PX 1000 ID 1");
        advance(Clock.SECOND);
        assertEquals(0L, call("LOCK.CHECK report " + token));
        assertNull(call("LOCK.ACQUIRE report PX 1000 ID 2"));
        assertEquals(1L, call("LOCK.EXTEND report " + token + " PX 1000"));
        advance(2 * Clock.SECOND);
        assertEquals("expired", state("report"));
        assertEquals(0L, call("LOCK.EXTEND report " + token + " PX 1000"));
        assertEquals(-1L, call("LOCK.RELEASE report " + token));
        assertEquals("free", state("report"));
        assertEquals(0L, call("LOCK.RELEASE report " + token));
    }

    @Test
    void anUnknownCommandIsAnError() {
        assertThrows(ReplyException.class, () -> call("SET report 1"));
        assertThrows(ReplyException.class, () -> call("LOCK.ACQUIRE report PX 1000 SOON"));
    }
}
