package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.command.Request;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** The lock as a JDK {@link Lock}, which a thread holds from lock to unlock. */
final class LockView implements Lock {
    private final Engine engine;
    private final Request request;
    /** What each call of lock in this thread got, until its unlock; otherwise null. */
    private final ThreadLocal<Deque<Held>> mine = new ThreadLocal<>();

    LockView(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
    }

    private void acquire(Duration wait) throws InterruptedException {
        Deque<Held> before = mine.get();
        boolean replaces = before != null && !request.isReentrant();
        if (replaces && before.peek().hold().whyNotHeld() == null) {
            throw new LockMisuseException(request.name(), "this thread already holds it; it is not reentrant", null);
        }
        Held held = Held.acquire(engine, request.withWaiting(wait));
        if (replaces) { // that lock was lost
            before.pop().hold().drop();
        } else if (before == null) {
            before = new ArrayDeque<>(2);
            mine.set(before);
        }
        before.push(held);
        engine.scopes().enter(held.hold());
    }

    @Override
    public void lock() {
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    acquire(Locks.FOREVER);
                    return;
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true; // this method cannot be interrupted
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(Locks.FOREVER);
    }

    @Override
    public boolean tryLock() {
        boolean wasInterrupted = Thread.interrupted();
        try {
            return tryLock(0, TimeUnit.NANOSECONDS);
        } catch (InterruptedException interrupt) {
            wasInterrupted = true;
            return false;
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        try {
            acquire(Duration.ofNanos(Math.max(0, unit.toNanos(time))));
            return true;
        } catch (LockRefusedException somebodyElse) {
            return false;
        }
    }

    @Override
    public void unlock() {
        Deque<Held> before = mine.get();
        if (before == null) {
            throw new IllegalMonitorStateException("the lock " + request.name() + ": this thread does not hold it");
        }
        Held held = before.pop();
        if (before.isEmpty()) {
            mine.remove();
        }
        held.close();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a server lock has no conditions");
    }

    @Override
    public String toString() {
        return "Lock[" + request.name() + "]";
    }
}
