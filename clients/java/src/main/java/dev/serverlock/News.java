package dev.serverlock;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** What one attempt hears. */
final class News {
    private static final int MOST = 16;

    private final ReentrantLock mutex = new ReentrantLock();
    private final Condition changed = mutex.newCondition();
    private final Deque<String> heard = new ArrayDeque<>();
    private boolean isStirred;
    /** When to send the attempt again after the connection is open again. */
    private long againAt = Clock.NEVER;

    void hear(String kind) {
        mutex.lock();
        try {
            if (heard.size() < MOST) { // it has more to read than it needs
                heard.add(kind);
            }
            changed.signal();
        } finally {
            mutex.unlock();
        }
    }

    /** The state of the connection, or of the manager, has changed. */
    void stir() {
        askAgainAt(Clock.NEVER);
    }

    void askAgainAt(long time) {
        mutex.lock();
        try {
            againAt = Math.min(againAt, time);
            isStirred = true;
            changed.signal();
        } finally {
            mutex.unlock();
        }
    }

    long againAt() {
        mutex.lock();
        try {
            return againAt;
        } finally {
            mutex.unlock();
        }
    }

    /** What was heard before a new call says nothing about it. */
    void forget() {
        mutex.lock();
        try {
            heard.clear();
            againAt = Clock.NEVER;
        } finally {
            mutex.unlock();
        }
    }

    /** Gives the next message; null: the time is over, or something has changed. */
    String await(long span) throws InterruptedException {
        mutex.lockInterruptibly();
        try {
            long left = span;
            while (heard.isEmpty() && !isStirred && left > 0) {
                left = changed.awaitNanos(left);
            }
            isStirred = false;
            return heard.poll();
        } finally {
            mutex.unlock();
        }
    }
}
