package jsr166;

import java.util.Collection;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * The JDK's class over {@code asReentrantLock()}. The server reports whether it is locked, and how many wait. The view
 * does not report which threads hold and wait, so this class counts them. There are no conditions.
 */
public class ReentrantLock implements Lock {
    private final String key = Here.key();
    private final Lock lock = Here.LOCKS.lock(key, Here.LEASE).asReentrantLock();
    private final boolean isFair;
    private final Set<Thread> inLock = ConcurrentHashMap.newKeySet();
    private volatile Thread owner;
    private int holds; // of the owner, which alone writes it

    public ReentrantLock() {
        this(false);
    }

    /** The server's queue is fair, whatever is asked for. */
    public ReentrantLock(boolean fair) {
        isFair = fair;
    }

    private void taken() {
        holds = isHeldByCurrentThread() ? holds + 1 : 1;
        owner = Thread.currentThread();
    }

    @Override
    public void lock() {
        inLock.add(Thread.currentThread());
        try {
            lock.lock();
            taken();
        } finally {
            inLock.remove(Thread.currentThread());
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        inLock.add(Thread.currentThread());
        try {
            lock.lockInterruptibly();
            taken();
        } finally {
            inLock.remove(Thread.currentThread());
        }
    }

    @Override
    public boolean tryLock() {
        boolean isTaken = lock.tryLock();
        if (isTaken) {
            taken();
        }
        return isTaken;
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        inLock.add(Thread.currentThread());
        try {
            boolean isTaken = lock.tryLock(time, unit);
            if (isTaken) {
                taken();
            }
            return isTaken;
        } finally {
            inLock.remove(Thread.currentThread());
        }
    }

    @Override
    public void unlock() {
        if (isHeldByCurrentThread() && --holds == 0) {
            owner = null;
        }
        lock.unlock();
    }

    @Override
    public Condition newCondition() {
        return lock.newCondition();
    }

    public final boolean isFair() {
        return isFair;
    }

    public boolean isLocked() {
        return Here.isHeld(key);
    }

    public boolean isHeldByCurrentThread() {
        return owner == Thread.currentThread();
    }

    public int getHoldCount() {
        return isHeldByCurrentThread() ? holds : 0;
    }

    protected Thread getOwner() {
        return owner;
    }

    public final int getQueueLength() {
        return Here.waiters(key);
    }

    public final boolean hasQueuedThreads() {
        return getQueueLength() > 0;
    }

    protected Collection<Thread> getQueuedThreads() {
        return Set.copyOf(inLock);
    }

    /** A thread in a lock method waits once the server has as many waiters as there are such threads. */
    public final boolean hasQueuedThread(Thread thread) {
        return inLock.contains(Objects.requireNonNull(thread)) && getQueueLength() == inLock.size();
    }

    public boolean hasWaiters(Condition condition) {
        throw new UnsupportedOperationException();
    }

    public int getWaitQueueLength(Condition condition) {
        throw new UnsupportedOperationException();
    }

    protected Collection<Thread> getWaitingThreads(Condition condition) {
        throw new UnsupportedOperationException();
    }

    @Override
    public String toString() {
        return lock.toString();
    }
}
