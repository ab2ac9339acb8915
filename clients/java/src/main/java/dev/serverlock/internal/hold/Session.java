package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.WatchedConnection;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** A connection and its locks. The attempt that has taken it may call, once at a time. */
public final class Session {
    final Node node;
    /** The thread whose locks these are. */
    final Thread caller = Thread.currentThread();

    /** Its locks. The monitor of Sessions guards these fields. */
    final Set<Hold> holds = new LinkedHashSet<>();

    boolean isTaken = true;
    /** The reply that an interrupted call has left to be read, and until when it may come. */
    CompletableFuture<Object> pending;

    long pendingUntil;

    private final Context context;
    private final WatchedConnection connection;

    Session(Context context, Node node, WatchedConnection connection) {
        this.context = context;
        this.node = node;
        this.connection = connection;
    }

    public boolean isOpen() {
        return connection.isOpen();
    }

    /**
     * Sends one command. Throws ReplyError or ConnectionLost. After ConnectionLost the connection is closed, but after
     * an interrupt it stays open.
     */
    public Object call(byte[][] words, long timeout) throws InterruptedException {
        pendingUntil = context.now() + timeout;
        pending = connection.send(words);
        boolean isAnswered = context.await(pending, timeout);
        CompletableFuture<Object> reply = pending;
        pending = null;
        if (!isAnswered) {
            connection.close();
            throw new ConnectionLost("no reply within " + timeout / Clock.MILLISECOND + " ms");
        }
        try {
            return reply.get();
        } catch (ExecutionException error) {
            RuntimeException read = Errors.read(error.getCause());
            if (read instanceof ConnectionLost) {
                connection.close();
            }
            throw read;
        }
    }

    public void close() {
        connection.close();
    }
}
