package dev.serverlock.internal.connection;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Connection;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** A few dedicated connections, for blocking waits and for WAIT after a grant. Thread-safe. */
public final class Connections {
    private static final int MOST = 8;

    private final Context context;
    private final Router router;
    private final Semaphore turns = new Semaphore(MOST, true);
    private final Deque<Connection> idle = new ArrayDeque<>();

    public Connections(Context context, Router router) {
        this.context = context;
        this.router = router;
    }

    /**
     * Sends one command. Throws ReplyError or ConnectionLost; after ConnectionLost, and after an interrupt, the
     * connection is closed.
     */
    public static Object call(Connection connection, byte[][] words, long timeout) throws InterruptedException {
        try {
            return connection.call(words, Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }

    public boolean hasWaiters() {
        return turns.hasQueuedThreads();
    }

    /** Takes a connection; null if none became free in time. */
    public Connection take(byte[] key, long timeout) throws InterruptedException {
        long end = Clock.after(context.now(), timeout);
        // In short pieces, to notice when the manager is closed.
        while (!turns.tryAcquire(Math.min(Clock.SECOND, Math.max(0, end - context.now())), TimeUnit.NANOSECONDS)) {
            if (context.now() >= end || context.isClosed()) {
                return null;
            }
        }
        Connection connection = null;
        try {
            // In a cluster, an idle connection may belong to a different server than the key.
            connection = kept();
            if (connection == null) {
                connection = router.dial(key, context.timeout());
            }
            return connection;
        } finally {
            if (connection == null) {
                turns.release();
            }
        }
    }

    private synchronized Connection kept() {
        while (!idle.isEmpty()) {
            Connection last = idle.pollLast();
            if (last.isOpen()) {
                return last;
            }
        }
        return null;
    }

    public void giveBack(Connection connection) {
        boolean keeps;
        synchronized (this) {
            keeps = connection.isOpen() && !router.isCluster() && !context.isClosed();
            if (keeps) {
                idle.add(connection);
            }
        }
        if (!keeps) {
            connection.close();
        }
        turns.release();
    }

    public synchronized void close() {
        idle.forEach(Connection::close);
        idle.clear();
    }
}
