package dev.serverlock;

import dev.serverlock.spi.Line;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** A few connections for calls that need one to themselves: blocking waits, and WAIT behind a grant. */
final class Lines {
    private static final int MOST = 8;

    private final Engine engine;
    private final Semaphore turns = new Semaphore(MOST, true);
    private final Deque<Line> idle = new ArrayDeque<>();

    Lines(Engine engine) {
        this.engine = engine;
    }

    /** One exchange on a line. What it throws is Said or Broken; after Broken, and an interrupt, the line is closed. */
    static Object call(Line line, byte[][] words, long timeout) throws InterruptedException {
        try {
            return line.call(words, Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Judge.read(error);
        }
    }

    boolean isCrowded() {
        return turns.hasQueuedThreads();
    }

    /** Gives a line, or null when none came free in time. */
    Line take(byte[] key, long timeout) throws InterruptedException {
        long end = Clock.after(engine.clock.now(), timeout);
        // In short spans, so that the end of the manager is noticed.
        while (!turns.tryAcquire(Math.min(Clock.SECOND, Math.max(0, end - engine.clock.now())), TimeUnit.NANOSECONDS)) {
            if (engine.clock.now() >= end || engine.isClosed()) {
                return null;
            }
        }
        Line made = null;
        try {
            // In a cluster each key has its own server: a line kept for another one would be of no use.
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

    private synchronized Line kept() {
        while (!idle.isEmpty()) {
            Line last = idle.pollLast();
            if (last.isOpen()) {
                return last;
            }
        }
        return null;
    }

    void giveBack(Line line) {
        boolean keeps;
        synchronized (this) {
            keeps = line.isOpen() && !engine.router.isCluster() && !engine.isClosed();
            if (keeps) {
                idle.add(line);
            }
        }
        if (!keeps) {
            line.close();
        }
        turns.release();
    }

    synchronized void close() {
        idle.forEach(Line::close);
        idle.clear();
    }
}
