package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** A dedicated connection that replaces the shared connection while a reply is overdue on it. */
final class Spare {
    private final Supplier<CompletableFuture<LettuceConnection>> dial;
    /** The connection, which may still be opening. */
    private CompletableFuture<LettuceConnection> connection;

    Spare(Supplier<CompletableFuture<LettuceConnection>> dial) {
        this.dial = dial;
    }

    void exchange(List<Call> calls, Duration timeout) {
        LettuceConnection open;
        try {
            open = LettuceNode.within(timeout, opened());
        } catch (RuntimeException error) {
            fail(calls, error);
            return;
        }
        open.exchange(calls, timeout);
    }

    /** Like exchange, but does not block. */
    CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
        return opened().copy()
                .orTimeout(timeout.toNanos(), TimeUnit.NANOSECONDS)
                .thenCompose(open -> open.send(calls, timeout))
                .exceptionally(error -> {
                    fail(calls, error);
                    return null;
                });
    }

    private static void fail(List<Call> calls, Throwable error) {
        RuntimeException read = Sent.read(error);
        calls.forEach(call -> call.error = read);
    }

    private synchronized CompletableFuture<LettuceConnection> opened() {
        boolean isUsable = connection != null
                && (!connection.isDone()
                        || !connection.isCompletedExceptionally()
                                && connection.join().isOpen());
        if (!isUsable) {
            try {
                connection = dial.get();
            } catch (RuntimeException shutDown) {
                connection = CompletableFuture.failedFuture(shutDown);
            }
        }
        return connection;
    }

    /**
     * Called when the shared connection replies again. Closes this one once nothing is pending, without blocking a
     * Lettuce thread.
     */
    synchronized void end() {
        if (connection != null) {
            connection.thenAccept(LettuceConnection::closeWhenIdle);
            connection = null;
        }
    }
}
