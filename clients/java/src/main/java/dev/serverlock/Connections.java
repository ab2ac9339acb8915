package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** A few dedicated connections, for blocking waits and for WAIT behind a grant. */
final class Connections {
    private static final int MOST = 8;

    private final Engine engine;
    private final Semaphore turns = new Semaphore(MOST, true);
    private final Deque<Connection> idle = new ArrayDeque<>();

    Connections(Engine engine) {
        this.engine = engine;
    }

    /**
     * Sends one command. Throws ReplyError or ConnectionLost; after ConnectionLost, and after an interrupt, the
     * connection is closed.
     */
    static Object call(Connection connection, byte[][] words, long timeout) throws InterruptedException {
        try {
            return connection.call(words, Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }

    boolean isCrowded() {
        return turns.hasQueuedThreads();
    }

    /** Takes a connection; null if none came free in time. */
    Connection take(byte[] key, long timeout) throws InterruptedException {
        long end = Clock.after(engine.clock.now(), timeout);
        // In short spans, to notice that the manager is closed.
        while (!turns.tryAcquire(Math.min(Clock.SECOND, Math.max(0, end - engine.clock.now())), TimeUnit.NANOSECONDS)) {
            if (engine.clock.now() >= end || engine.isClosed()) {
                return null;
            }
        }
        Connection made = null;
        try {
            // In a cluster, an idle connection may lead to another server than that of the key.
            made = kept();
            if (made == null) {
                made = engine.router.dial(key, false, engine.timeout);
            }
            return made;
        } finally {
            if (made == null) {
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

    void giveBack(Connection connection) {
        boolean keeps;
        synchronized (this) {
            keeps = connection.isOpen() && !engine.router.isCluster() && !engine.isClosed();
            if (keeps) {
                idle.add(connection);
            }
        }
        if (!keeps) {
            connection.close();
        }
        turns.release();
    }

    synchronized void close() {
        idle.forEach(Connection::close);
        idle.clear();
    }
}
