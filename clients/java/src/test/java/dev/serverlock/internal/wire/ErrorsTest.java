package dev.serverlock.internal.wire;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.LockArgumentException;
import dev.serverlock.LockDeadlockException;
import dev.serverlock.LockDeniedException;
import dev.serverlock.LockNoServerException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.LockUnavailableException;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Server errors become the errors that users get. */
class ErrorsTest {
    @Test
    void serverErrorsHaveAKind() {
        assertTrue(Errors.typed(new ReplyError("NOPERM x"), "a", 0) instanceof LockDeniedException);
        assertTrue(Errors.typed(new ReplyError("DEADLOCK x"), "a", 0) instanceof LockDeadlockException);
        assertTrue(
                Errors.typed(new ReplyError("ERR unknown command 'LOCK.ACQUIRE'"), "a", 0)
                        instanceof LockUnavailableException);
        assertTrue(Errors.typed(new ReplyError("WRONGTYPE x"), "a", 0) instanceof LockArgumentException);
        assertTrue(Errors.typed(new ConnectionLost("x"), "a", 0) instanceof LockNoServerException);
    }

    @Test
    void temporaryErrorsAreRetriedAndEndAsUnavailableOrTimedOut() {
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
            ReplyError reply = new ReplyError(passing + " of the server");
            assertTrue(Errors.isTransient(reply), passing);
            assertTrue(Errors.typed(reply, "a", 0) instanceof LockTimeoutException, passing);
            assertTrue(Errors.typed(reply, "a", Errors.NO_WAIT) instanceof LockUnavailableException, passing);
        }
        for (String lasting : List.of("GRACE lease", "BUSYLOCKS 64 waits", "CLOCK")) {
            ReplyError reply = new ReplyError(lasting + " of the server");
            assertFalse(Errors.isTransient(reply), lasting);
            assertTrue(Errors.typed(reply, "a", 0) instanceof LockUnavailableException, lasting);
        }
    }
}
