package dev.serverlock.internal.wire;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * How one caller's commands reach a key's server. A blocking exchange returns completed futures, so that code written
 * for futures runs in its caller's thread.
 */
@FunctionalInterface
public interface Exchange {
    /** Completes with the reply, ReplyError or ConnectionLost. */
    CompletableFuture<Object> send(byte[][] words);

    /** Blocks until the reply. */
    @FunctionalInterface
    interface Blocking {
        Object send(byte[][] words) throws InterruptedException;
    }

    static Exchange blocking(Blocking call) {
        return words -> {
            try {
                return CompletableFuture.completedFuture(call.send(words));
            } catch (RuntimeException | InterruptedException error) {
                return CompletableFuture.failedFuture(error);
            }
        };
    }

    /** Returns the result of code that used a blocking exchange, or throws its error. */
    static <T> T result(CompletableFuture<T> done) throws InterruptedException {
        try {
            return done.join();
        } catch (CompletionException error) {
            Throwable cause = cause(error);
            if (cause instanceof InterruptedException interrupt) {
                throw interrupt;
            }
            if (cause instanceof Error serious) {
                throw serious;
            }
            throw (RuntimeException) cause;
        }
    }

    /** The error that a future was completed with, which dependent futures wrap. */
    static Throwable cause(Throwable error) {
        Throwable cause = error;
        while (cause instanceof CompletionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }
}
