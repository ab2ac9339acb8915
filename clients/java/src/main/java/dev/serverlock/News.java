package dev.serverlock;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** The messages for one attempt. */
final class News {
    private static final int MOST = 16;

    private final ReentrantLock mutex = new ReentrantLock();
    private final Condition changed = mutex.newCondition();
    private final Deque<String> messages = new ArrayDeque<>();
    private boolean isWoken;
    /** When to send the attempt again after the connection is open again. */
    private long againAt = Clock.NEVER;

    void add(String kind) {
        mutex.lock();
        try {
            if (messages.size() < MOST) { // more would say nothing new
                messages.add(kind);
            }
            changed.signal();
        } finally {
            mutex.unlock();
        }
    }

    /** The state of the connection, or of the manager, has changed. */
    void wake() {
        askAgainAt(Clock.NEVER);
    }

    void askAgainAt(long time) {
        mutex.lock();
        try {
            againAt = Math.min(againAt, time);
            isWoken = true;
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

    /** Drops messages from before a new ACQUIRE, which say nothing about it. */
    void forget() {
        mutex.lock();
        try {
            messages.clear();
            againAt = Clock.NEVER;
        } finally {
            mutex.unlock();
        }
    }

    /** Returns the next message; null: the time is over, or the state has changed. */
    String await(long span) throws InterruptedException {
        mutex.lockInterruptibly();
        try {
            long left = span;
            while (messages.isEmpty() && !isWoken && left > 0) {
                left = changed.awaitNanos(left);
            }
            isWoken = false;
            return messages.poll();
        } finally {
            mutex.unlock();
        }
    }
}
