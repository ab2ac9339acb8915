package dev.serverlock.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Keys in messages are quoted. */
class WordsTest {
    @Test
    void keysAreShownReadably() {
        assertEquals("\"a\", \"b \\\"c\\\"\"", Words.shown(List.of(Words.bytes("a"), Words.bytes("b \"c\""))));
        assertEquals("\"\\x00\u00ff\"", Words.shown(List.of(new byte[] {0, (byte) 0xff})));
        assertTrue(Words.shown(List.of(new byte[4000])).length() < 1000);
    }
}
