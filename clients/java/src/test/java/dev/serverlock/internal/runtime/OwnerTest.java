package dev.serverlock.internal.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The owner of a lock whose caller names none. */
class OwnerTest {
    @Test
    void itNamesThisProcess() {
        String owner = Owner.hostAndPid();
        assertTrue(owner.endsWith(":" + ProcessHandle.current().pid()), owner);
        assertTrue(owner.indexOf(':') > 0, owner);
    }

    @Test
    void aHostNameBecomesAValidOwner() {
        assertEquals("web?1.ex?mple:12", Owner.of("web 1.ex\u00e4mple", 12));
        assertEquals("h".repeat(125) + ":12", Owner.of("h".repeat(300), 12));
        assertEquals("?:12", Owner.of("\ud83d\udd12", 12), "one character outside the first plane");
    }
}
