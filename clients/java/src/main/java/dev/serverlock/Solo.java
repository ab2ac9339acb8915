package dev.serverlock;

import dev.serverlock.spi.Line;

/**
 * The one line on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message.
 *
 * <p>It is for processes that do one thing at a time. From the second attempt that waits at the same time on, all
 * attempts
 * wait by NOTIFY. While the line is open, calls keep to one connection of the pool, so that there are never more than
 * three in all; a crowd of calls ends it too.
 */
final class Solo {
    private final Engine engine;
    private Line line;
    private boolean isTaken;
    /** Calls are narrowed for it. */
    private boolean isUsed;
    /** A second attempt has waited. */
    private boolean isOver;

    Solo(Engine engine) {
        this.engine = engine;
    }

    /** Whether an attempt may begin on it: the line is open, and nobody waits. */
    synchronized boolean isReady() {
        return !isTaken && !isOver && line != null && line.isOpen();
    }

    /** Whether the caller waits alone. If so, the line is its own until it leaves. */
    synchronized boolean enter() {
        if (isTaken || isOver || !isUsed && !engine.router.narrow(this::end)) {
            return false;
        }
        isTaken = true;
        isUsed = true;
        return true;
    }

    synchronized boolean hasEnded() {
        return isOver;
    }

    /** Gives the line to the attempt that has entered. */
    Line take(byte[] key) {
        synchronized (this) {
            if (line != null && line.isOpen()) {
                return line;
            }
        }
        Line made = engine.router.dial(key, false, engine.timeout);
        synchronized (this) {
            line = made;
        }
        if (engine.isClosed()) { // close came before the line
            made.close();
        }
        return made;
    }

    void leave() {
        boolean ends;
        synchronized (this) {
            isTaken = false;
            ends = isOver;
        }
        if (ends) {
            end();
        }
    }

    /** Others wait or call. An attempt that blocks on the line does so to the end of its piece. */
    void end() {
        Line ended;
        boolean wasUsed;
        synchronized (this) {
            isOver = true;
            if (isTaken) {
                return;
            }
            ended = line;
            wasUsed = isUsed;
            line = null;
            isUsed = false;
        }
        if (ended != null) {
            ended.close();
        }
        if (wasUsed) {
            engine.router.widen();
        }
    }

    /** Ends the wait as well. */
    void close() {
        Line open;
        synchronized (this) {
            isOver = true;
            open = line;
        }
        if (open != null) {
            open.close();
        }
    }
}
