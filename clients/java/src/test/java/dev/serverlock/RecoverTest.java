package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ScriptedServer;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The error of a RECOVER that is refused. The scenarios of clients/suite run it on servers. */
class RecoverTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final String FREE = "the lock \"work\": there is nothing to recover: the lock is free";
    private static final String HELD = "the lock \"work\": somebody else has it";

    private static final List<Object> PLAIN = List.of("state", "free", "token", 7L);

    /** Returns the text of the error. */
    private static String refusal(ScriptedServer server) {
        try (Locks locks = Locks.builder(server).warnWithoutModule(false).build()) {
            LockRefusedException refused = assertThrows(
                    LockRefusedException.class,
                    () -> locks.recover("work", LEASE).acquire());
            assertEquals("refused", refused.code());
            return refused.getMessage();
        }
    }

    /** info: the reply to LOCK.INFO. */
    private static ScriptedServer withModule(Object info) {
        return new ScriptedServer(words -> {
            if (words.get(0).equals("LOCK.INFO") && info instanceof RuntimeException error) {
                throw error;
            }
            return words.get(0).equals("LOCK.INFO") ? info : null;
        });
    }

    @Test
    void itSaysThatTheLockIsFree() {
        ScriptedServer server = withModule(PLAIN);
        assertEquals(FREE, refusal(server));
        assertEquals(List.of(List.of("LOCK.INFO", "work")), server.sent("LOCK.INFO"));
    }

    @Test
    void itDoesNotSaySoOfAHeldLockOrIfTheServerDoesNot() {
        assertEquals(HELD, refusal(withModule(List.of("state", "held"))));
        assertEquals(HELD, refusal(withModule(null)));
        assertEquals(HELD, refusal(withModule(new ReplyException("NOPERM no permission"))));
        assertEquals(HELD, refusal(withModule(new ScriptedServer.Overdue(null))));
    }

    @Test
    void withoutTheModuleTheScriptIsAsked() {
        ScriptedServer server = new ScriptedServer(words -> {
            if (words.get(0).startsWith("LOCK.")) {
                throw new ReplyException("ERR unknown command");
            }
            return words.contains("lock_info") ? PLAIN : null;
        });
        assertEquals(FREE, refusal(server));
        List<List<String>> scripts = server.sent("EVALSHA");
        List<String> last = scripts.get(scripts.size() - 1);
        assertTrue(last.containsAll(List.of("work", "work:queue:{work}", "lock_info")), last.toString());
    }

    @Test
    void anotherAttemptIsNotFollowedByLockInfo() {
        ScriptedServer server = withModule(PLAIN);
        try (Locks locks = Locks.over(server)) {
            assertThrows(
                    LockRefusedException.class, () -> locks.lock("work", LEASE).acquire());
        }
        assertEquals(0, server.count("LOCK.INFO"));
    }
}
