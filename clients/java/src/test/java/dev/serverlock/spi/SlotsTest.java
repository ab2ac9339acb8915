package dev.serverlock.spi;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import dev.serverlock.internal.wire.Words;
import org.junit.jupiter.api.Test;

/** The slots of a cluster. */
class SlotsTest {
    @Test
    void slotsAreTheSameAsOnTheServer() {
        assertEquals(12739, Slots.of(Words.bytes("123456789")));
        assertEquals(Slots.of(Words.bytes("user1000")), Slots.of(Words.bytes("{user1000}.following")));
        assertEquals(Slots.of(Words.bytes("{}a")), Slots.of(Words.bytes("{}a")));
        assertFalse(Slots.of(Words.bytes("{}a")) == Slots.of(new byte[0]), "empty braces are no hash tag");
    }
}
