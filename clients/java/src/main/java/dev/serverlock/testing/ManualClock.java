package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The time of a {@link LockServer} and all its Locks. It stands still until the test moves it. Leases, waits, renewals
 * and pauses are measured on it. Any thread may call its methods.
 */
public final class ManualClock {
    private static final Instant START = Instant.parse("2000-01-01T00:00:00Z");

    private final Threads threads = new Threads();
    private final Lock moving = new ReentrantLock();
    private final Clock ticking = new Ticking();
    private final PriorityQueue<Alarm> alarms = new PriorityQueue<>();
    private long time;
    private long count;

    ManualClock() {}

    /** Something to do at a time. It must not block. */
    record Alarm(long at, long number, Runnable work) implements Comparable<Alarm> {
        @Override
        public int compareTo(Alarm other) {
            return at == other.at ? Long.compare(number, other.number) : Long.compare(at, other.at);
        }
    }

    /** {@return the server's time, which begins with the year 2000} */
    public Instant now() {
        return START.plusNanos(time());
    }

    /**
     * Moves the clock, and carries out everything that falls due on the way, in chronological order: renewals, the ends
     * of leases and of waits, and what the code under test does about them. Returns once all threads that have called a
     * method of Locks wait again, or have ended. A thread that is busy for ten seconds is not waited for.
     *
     * @param span zero or more
     */
    public void advance(Duration span) {
        if (span.isNegative()) {
            throw new IllegalArgumentException("a clock cannot go backwards: " + span);
        }
        moving.lock();
        try {
            settle();
            long end = Clock.after(time(), Clock.nanos(span));
            for (Alarm next = next(end); next != null; next = next(end)) {
                next.work.run();
                settle();
            }
        } finally {
            moving.unlock();
        }
    }

    /** Moves the clock to the next alarm that is due by the end, and returns it. Without one, moves to the end. */
    private synchronized Alarm next(long end) {
        boolean isDue = !alarms.isEmpty() && alarms.peek().at <= end;
        time = isDue ? Math.max(time, alarms.peek().at) : end;
        return isDue ? alarms.poll() : null;
    }

    /** Returns once nothing is left to do at this time. */
    void settle() {
        threads.settle();
    }

    /** Nanoseconds since the start. */
    synchronized long time() {
        return time;
    }

    synchronized Alarm in(long span, Runnable work) {
        Alarm alarm = new Alarm(Clock.after(time, span), ++count, work);
        if (alarm.at != Clock.NEVER) {
            alarms.add(alarm);
        }
        return alarm;
    }

    /** alarm: null for none. */
    synchronized void cancel(Alarm alarm) {
        alarms.remove(alarm);
    }

    Threads threads() {
        return threads;
    }

    /** This clock, as Locks see it. */
    Clock ticking() {
        return ticking;
    }

    private final class Ticking extends Clock {
        @Override
        public long now() {
            return time();
        }

        @Override
        public boolean await(CompletableFuture<?> signal, long span) throws InterruptedException {
            if (!signal.isDone() && span > 0) {
                Threads.Sleeper sleeper = new Threads.Sleeper();
                Alarm alarm = in(span, () -> threads.wake(sleeper));
                signal.whenComplete((value, error) -> threads.wake(sleeper));
                try {
                    threads.sleep(sleeper);
                } finally {
                    cancel(alarm);
                }
            }
            return signal.isDone();
        }

        @Override
        public CompletableFuture<Void> completeAfter(CompletableFuture<Void> signal, long span) {
            Alarm alarm = in(Math.max(0, span), () -> signal.complete(null));
            signal.whenComplete((value, error) -> cancel(alarm));
            return signal;
        }

        @Override
        public Runnable counted(Runnable work) {
            return threads.counted(work);
        }

        @Override
        public long longestSleep() {
            return NEVER; // nothing is suspended
        }
    }
}
