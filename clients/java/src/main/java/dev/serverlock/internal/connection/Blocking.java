package dev.serverlock.internal.connection;

import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Connection;

/**
 * The dedicated connection on which a manager's lone wait blocks. That takes one round trip, where NOTIFY takes two and
 * a message. Thread-safe.
 *
 * <p>It is for processes that do one thing at a time. As soon as two attempts wait at the same time, all of them wait
 * with NOTIFY. While this connection is open, commands use only one pool connection, so there are at most three in all.
 * If commands queue there, this connection is closed as well.
 */
public final class Blocking {
    private final Context context;
    private final Router router;
    private Connection connection;
    private boolean isTaken;
    /** While this is set, commands use only one connection. */
    private boolean isUsed;
    /** A second attempt has waited. */
    private boolean isOver;

    public Blocking(Context context, Router router) {
        this.context = context;
        this.router = router;
    }

    /** Whether an attempt may begin on the connection: it is open, and no attempt uses it. */
    public synchronized boolean isReady() {
        return !isTaken && !isOver && connection != null && connection.isOpen();
    }

    /** Whether the caller waits alone. If so, the connection belongs to it until it leaves. */
    public synchronized boolean enter() {
        if (isTaken || isOver || !isUsed && !router.narrow(this::end)) {
            return false;
        }
        isTaken = true;
        isUsed = true;
        return true;
    }

    public synchronized boolean hasEnded() {
        return isOver;
    }

    /** Returns the connection to the attempt that has entered. */
    public Connection take(byte[] key) {
        synchronized (this) {
            if (connection != null && connection.isOpen()) {
                return connection;
            }
        }
        Connection dialled = router.dial(key, context.timeout());
        synchronized (this) {
            connection = dialled;
        }
        if (context.isClosed()) { // closed before the connection was open
            dialled.close();
        }
        return dialled;
    }

    public void leave() {
        boolean ends;
        synchronized (this) {
            isTaken = false;
            ends = isOver;
        }
        if (ends) {
            end();
        }
    }

    /**
     * Closes the connection because other attempts wait or commands queue. An attempt that blocks on it finishes its
     * piece first.
     */
    public void end() {
        Connection ended;
        boolean wasUsed;
        synchronized (this) {
            isOver = true;
            if (isTaken) {
                return;
            }
            ended = connection;
            wasUsed = isUsed;
            connection = null;
            isUsed = false;
        }
        if (ended != null) {
            ended.close();
        }
        if (wasUsed) {
            router.widen();
        }
    }

    /** Closes the connection, which ends the wait too. */
    public void close() {
        Connection open;
        synchronized (this) {
            isOver = true;
            open = connection;
        }
        if (open != null) {
            open.close();
        }
    }
}
