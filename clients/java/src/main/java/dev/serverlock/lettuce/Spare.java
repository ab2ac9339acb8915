package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** A dedicated connection that replaces the shared connection while a reply is overdue on it. */
final class Spare {
    /** One connection, which may still be opening, and the number of exchanges that use it. */
    private static final class Opened {
        final CompletableFuture<LettuceConnection> connection;
        int users;
        boolean isOver;

        Opened(CompletableFuture<LettuceConnection> connection) {
            this.connection = connection;
        }

        boolean isUsable() {
            return !connection.isDone()
                    || !connection.isCompletedExceptionally()
                            && connection.join().isOpen();
        }
    }

    private final Supplier<CompletableFuture<LettuceConnection>> dial;
    private Opened current;

    Spare(Supplier<CompletableFuture<LettuceConnection>> dial) {
        this.dial = dial;
    }

    void exchange(List<Call> calls, Duration timeout) {
        Opened used = enter();
        try {
            LettuceNode.within(timeout, used.connection).exchange(calls, timeout);
        } catch (RuntimeException error) {
            fail(calls, error);
        } finally {
            leave(used);
        }
    }

    /** Like exchange, but does not block. */
    CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
        Opened used = enter();
        return used.connection
                .copy()
                .orTimeout(timeout.toNanos(), TimeUnit.NANOSECONDS)
                .thenCompose(open -> open.send(calls, timeout))
                .handle((sent, error) -> {
                    if (error != null) {
                        fail(calls, error);
                    }
                    leave(used);
                    return null;
                });
    }

    private static void fail(List<Call> calls, Throwable error) {
        RuntimeException read = Sent.read(error);
        calls.forEach(call -> call.error = read);
    }

    private synchronized Opened enter() {
        if (current == null || !current.isUsable()) {
            CompletableFuture<LettuceConnection> connection;
            try {
                connection = dial.get();
            } catch (RuntimeException shutDown) {
                connection = CompletableFuture.failedFuture(shutDown);
            }
            current = new Opened(connection);
        }
        current.users++;
        return current;
    }

    private synchronized void leave(Opened used) {
        used.users--;
        closeIfIdle(used);
    }

    /**
     * Called when the shared connection replies again. Closes this one after its last exchange, without blocking a
     * Lettuce thread.
     */
    synchronized void end() {
        if (current != null) {
            current.isOver = true;
            closeIfIdle(current);
            current = null;
        }
    }

    private static void closeIfIdle(Opened opened) {
        if (opened.isOver && opened.users == 0) {
            opened.connection.thenAccept(LettuceConnection::closeWhenIdle);
        }
    }
}
