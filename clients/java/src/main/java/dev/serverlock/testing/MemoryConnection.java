package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.ServerException;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/** A dedicated connection to a server in memory. */
final class MemoryConnection implements WatchedConnection {
    private final Commands commands;
    private final Consumer<String> onMessage;
    private final Set<CompletableFuture<Object>> pending = ConcurrentHashMap.newKeySet();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    MemoryConnection(Commands commands, Consumer<String> onMessage) {
        this.commands = commands;
        this.onMessage = onMessage;
    }

    @Override
    public Object call(byte[][] words, Duration timeout) throws InterruptedException {
        CompletableFuture<Object> reply = send(words);
        boolean isAnswered = false;
        try {
            isAnswered = commands.clock().ticking().await(reply, Clock.nanos(timeout));
        } finally {
            if (!isAnswered) {
                close();
            }
        }
        if (!isAnswered) {
            throw new ServerException("no reply within " + timeout, null);
        }
        try {
            return reply.join();
        } catch (CompletionException error) {
            throw (RuntimeException) error.getCause();
        }
    }

    @Override
    public CompletableFuture<Object> send(byte[][] words) {
        if (!isOpen()) {
            return CompletableFuture.failedFuture(over());
        }
        CompletableFuture<Object> reply = commands.run(this, words);
        pending.add(reply);
        reply.whenComplete((value, error) -> pending.remove(reply));
        if (!isOpen()) { // closed meanwhile
            reply.completeExceptionally(over());
        }
        return reply;
    }

    private static ServerException over() {
        return new ServerException("the connection has ended", null);
    }

    void deliver(String message) {
        if (isOpen()) {
            onMessage.accept(message);
        }
    }

    @Override
    public boolean isOpen() {
        return !ended.isDone();
    }

    @Override
    public void onEnd(Runnable call) {
        ended.thenRun(call);
    }

    @Override
    public void close() {
        if (isOpen()) {
            commands.table().change(() -> commands.table().disconnect(this));
            ended.complete(null);
            pending.forEach(reply -> reply.completeExceptionally(over()));
        }
    }
}
