package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.ReplyError;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Errors in logs, in metrics and in other processes. */
class LockExceptionTest {
    /** All kinds can be serialized, and have a stable code. */
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
