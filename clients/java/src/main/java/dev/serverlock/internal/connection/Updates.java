package dev.serverlock.internal.connection;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;

/** The messages for one attempt, and changes in the connection. Thread-safe. */
public final class Updates {
    private static final int MOST = 16;

    private final Context context;
    private final ReentrantLock mutex = new ReentrantLock();
    private final Deque<String> messages = new ArrayDeque<>();
    private boolean isWoken;
    /** Completed at the next change, if an attempt waits for it. */
    private CompletableFuture<Void> change;

    /** When to resend the attempt after the connection was restored. */
    private long againAt = Clock.NEVER;

    Updates(Context context) {
        this.context = context;
    }

    public void add(String kind) {
        mutex.lock();
        try {
            if (messages.size() < MOST) { // more would add nothing
                messages.add(kind);
            }
            signal();
        } finally {
            mutex.unlock();
        }
    }

    /** The caller must hold the mutex. */
    private void signal() {
        if (change != null) {
            change.complete(null);
            change = null;
        }
    }

    /** Call this when the connection or the manager has changed state. */
    public void wake() {
        askAgainAt(Clock.NEVER);
    }

    public void askAgainAt(long time) {
        mutex.lock();
        try {
            againAt = Math.min(againAt, time);
            isWoken = true;
            signal();
        } finally {
            mutex.unlock();
        }
    }

    public long againAt() {
        mutex.lock();
        try {
            return againAt;
        } finally {
            mutex.unlock();
        }
    }

    /** Drops messages from before a new ACQUIRE, which do not concern it. */
    public void forget() {
        mutex.lock();
        try {
            messages.clear();
            againAt = Clock.NEVER;
        } finally {
            mutex.unlock();
        }
    }

    /** Returns the next message, or null if the time is up, or the connection or the manager has changed state. */
    public String await(long span) throws InterruptedException {
        context.await(change(), span);
        return poll();
    }

    /** Returns the next message, or null, without waiting for it. */
    public String poll() {
        mutex.lock();
        try {
            isWoken = false;
            return messages.poll();
        } finally {
            mutex.unlock();
        }
    }

    /**
     * Completes when there is a message, or the connection or the manager has changed state, in the thread that reports
     * it. Replaces what earlier calls returned.
     */
    public CompletableFuture<Void> change() {
        mutex.lock();
        try {
            CompletableFuture<Void> next = new CompletableFuture<>();
            if (messages.isEmpty() && !isWoken) {
                change = next;
            } else {
                next.complete(null);
            }
            return next;
        } finally {
            mutex.unlock();
        }
    }
}
