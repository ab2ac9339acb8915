package dev.serverlock.internal.command;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import dev.serverlock.internal.wire.Words;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The names of queues, and the replies to attempts that wait in them. */
class QueuesTest {
    @Test
    void aQueueIsInTheSlotOfItsLock() {
        Map.of(
                        "report", "report:queue:{report}",
                        "{42}:report", "{42}:report:queue",
                        "a{b}", "a{b}:queue",
                        "a{{b}", "a{{b}:queue",
                        "a}{b}", "a}{b}:queue",
                        "\n", "\n:queue:{\n}")
                .forEach((lock, queue) -> assertEquals(queue, Words.text(Queues.of(Words.bytes(lock)))));
        for (String lock : List.of("a{b", "a}b", "{}x", "x{}{y}")) {
            assertNull(Queues.of(Words.bytes(lock)), lock);
        }
        assertEquals("report:result:{report}", Words.text(Queues.result(Words.bytes("report"))));
        assertEquals("{42}:report:result", Words.text(Queues.result(Words.bytes("{42}:report"))));
        assertNull(Queues.result(Words.bytes("a{b")));
        byte[] lock = {(byte) 0xff, 0};
        byte[] queue = {(byte) 0xff, 0, ':', 'q', 'u', 'e', 'u', 'e', ':', '{', (byte) 0xff, 0, '}'};
        assertArrayEquals(queue, Queues.of(lock));
    }

    @Test
    void aPlaceInTheQueueIsNotMistakenForDetails() {
        List<Object> waiting = List.of(Words.bytes("WAITING"), 1234L);
        assertSame(Grant.WAITING, Grant.read(waiting, 0, "a", true));
        assertEquals(1234, Grant.pause(waiting));
        assertEquals(-1, Grant.pause(Words.bytes("WAITING")));
        assertEquals(-1, Grant.pause(List.of(12L, 0L)));
        assertEquals(
                12,
                Grant.read(Arrays.asList(12L, null, null, null), 0, "a", true).token());
    }
}
