package dev.serverlock.testing;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Which threads have something to do for the Locks of a server. A thread is awake from when it is started, woken, or
 * sends a command, until it waits on the clock or has ended. A thread that waits for something else is awake for a
 * little longer, because the one that it waits for may be about to wake it. Thread-safe.
 */
final class Threads {
    /** For so many checks in a row, a thread that waits for something else still counts as awake. */
    private static final int MOST_CHECKS = 20;

    private static final long CHECK_EVERY = TimeUnit.MILLISECONDS.toNanos(1);
    /** How long a thread may compute, or an executor may keep work, until it is no longer waited for. */
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(10);

    /** The checks of a thread that has been woken and does not run yet. */
    private static final int NOT_UP = -1;

    /** The threads that are awake, each with the checks in a row that found it waiting for something else. */
    private final Map<Thread, Integer> awake = new HashMap<>();
    /** The work that was passed on to threads and has not begun. */
    private final Set<Object> passedOn = new HashSet<>();

    /** A thread that waits on the clock. */
    static final class Sleeper {
        private final Thread thread = Thread.currentThread();
        private final CountDownLatch gate = new CountDownLatch(1);
        private boolean isAsleep;
        private boolean isWoken;
    }

    /** Returns work that counts as something to do from now until it ends. */
    Runnable counted(Runnable work) {
        Object one = new Object();
        synchronized (this) {
            passedOn.add(one);
        }
        return () -> {
            boolean isNew = begin(one);
            try {
                work.run();
            } finally {
                if (isNew) {
                    end();
                }
            }
        };
    }

    /** Returns whether the calling thread was not awake. */
    private synchronized boolean begin(Object one) {
        passedOn.remove(one);
        return awake.put(Thread.currentThread(), 0) == null;
    }

    private synchronized void end() {
        awake.remove(Thread.currentThread());
        notifyAll();
    }

    /** The calling thread is awake. */
    synchronized void touch() {
        awake.put(Thread.currentThread(), 0);
    }

    /** Sleeps until {@link #wake}, even if that was before. */
    void sleep(Sleeper sleeper) throws InterruptedException {
        synchronized (this) {
            if (!sleeper.isWoken) {
                sleeper.isAsleep = true;
                awake.remove(sleeper.thread);
                notifyAll();
            }
        }
        try {
            sleeper.gate.await();
        } finally {
            wake(sleeper); // it may have been interrupted
            touch();
        }
    }

    synchronized void wake(Sleeper sleeper) {
        if (!sleeper.isWoken) {
            sleeper.isWoken = true;
            if (sleeper.isAsleep) {
                awake.put(sleeper.thread, NOT_UP);
            }
            sleeper.gate.countDown();
        }
    }

    /** Returns when no other thread is awake, or those that are have been computing for too long. */
    void settle() {
        long began = System.nanoTime();
        long checked = began;
        boolean wasInterrupted = false;
        synchronized (this) {
            while (isBusy() && System.nanoTime() - began < PATIENCE) {
                try {
                    TimeUnit.NANOSECONDS.timedWait(this, CHECK_EVERY);
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true;
                }
                if (System.nanoTime() - checked >= CHECK_EVERY) {
                    check();
                    checked = System.nanoTime();
                }
            }
            if (isBusy()) {
                passedOn.clear();
                awake.keySet().retainAll(Set.of(Thread.currentThread()));
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isBusy() {
        return !passedOn.isEmpty() || awake.size() > (awake.containsKey(Thread.currentThread()) ? 1 : 0);
    }

    private void check() {
        awake.replaceAll((thread, checks) -> checks == NOT_UP ? NOT_UP : waits(thread) ? checks + 1 : 0);
        awake.entrySet()
                .removeIf(one -> one.getValue() >= MOST_CHECKS || !one.getKey().isAlive());
    }

    /** Whether a thread waits for something other than the clock. One that reads from a socket is in native code. */
    private static boolean waits(Thread thread) {
        return switch (thread.getState()) {
            case WAITING, TIMED_WAITING -> true;
            case RUNNABLE -> {
                StackTraceElement[] frames = thread.getStackTrace();
                yield frames.length > 0 && frames[0].isNativeMethod();
            }
            default -> false;
        };
    }
}
