package dev.serverlock.internal.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.LockArgumentException;
import dev.serverlock.internal.wire.Words;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What counts as a result, with the module and without it. */
class StoredTest {
    private static Stored read(String text) {
        return Stored.read(Words.bytes(text));
    }

    @Test
    void aLargerTokenIsNewer() {
        Stored before = read("1795257107955466 stale");
        Stored after = read("1795257107955467 two words");
        assertTrue(after.isNewerThan(before));
        assertEquals("two words", Words.text(after.value()));
        assertFalse(after.isNewerThan(after));
        assertTrue(before.isNewerThan(Stored.read(null)));
    }

    @Test
    void whatDoesNotBeginWithATokenIsNoResult() {
        for (String text : List.of("", "nonsense", "no result", " x", "-1 x", "1e9 x", "9".repeat(20) + " x")) {
            assertFalse(read(text).isNewerThan(Stored.read(null)), text);
        }
    }

    @Test
    void onlyTheModuleRepliesWithAResult() {
        List<byte[]> reply = List.of(Words.bytes("42 pages"));
        assertEquals(
                "42 pages", Words.text(Grant.read(reply, 0, "report", false).result()));
        assertThrows(LockArgumentException.class, () -> Grant.read(reply, 0, "report", true));
    }
}
