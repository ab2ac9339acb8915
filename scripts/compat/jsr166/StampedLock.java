package jsr166;

import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;

/**
 * The JDK's class over a shared lock and an exclusive lock with the same key. A stamp is a token, which any thread may
 * release. The views are {@code asLock()}. There are no optimistic stamps, and none is converted.
 */
public class StampedLock {
    private final String key = Here.key();
    private final ServerLock reading = Here.LOCKS.shared(key, Here.LEASE);
    private final ServerLock writing = Here.LOCKS.lock(key, Here.LEASE);
    private final Lock asReading = reading.asLock();
    private final Lock asWriting = writing.asLock();
    private final NavigableMap<Long, Held> reads = new ConcurrentSkipListMap<>();
    private final NavigableMap<Long, Held> writes = new ConcurrentSkipListMap<>();

    private static long acquire(ServerLock lock, Map<Long, Held> into, Duration wait) throws InterruptedException {
        try {
            Held held = lock.waiting(wait).acquire();
            into.put(held.token(), held);
            return held.token();
        } catch (LockRefusedException somebodyElse) {
            return 0;
        }
    }

    private static long uninterruptibly(ServerLock lock, Map<Long, Held> into, Duration wait) {
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return acquire(lock, into, wait);
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static Duration duration(long time, TimeUnit unit) {
        return Duration.ofNanos(Math.max(0, unit.toNanos(time)));
    }

    private static void release(Map<Long, Held> from, long stamp) {
        Held held = from.remove(stamp);
        if (held == null) {
            throw new IllegalMonitorStateException();
        }
        held.release();
    }

    public long writeLock() {
        return uninterruptibly(writing, writes, Locks.FOREVER);
    }

    public long tryWriteLock() {
        return uninterruptibly(writing, writes, Duration.ZERO);
    }

    public long tryWriteLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(writing, writes, duration(time, unit));
    }

    public long writeLockInterruptibly() throws InterruptedException {
        return acquire(writing, writes, Locks.FOREVER);
    }

    public long readLock() {
        return uninterruptibly(reading, reads, Locks.FOREVER);
    }

    public long tryReadLock() {
        return uninterruptibly(reading, reads, Duration.ZERO);
    }

    public long tryReadLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(reading, reads, duration(time, unit));
    }

    public long readLockInterruptibly() throws InterruptedException {
        return acquire(reading, reads, Locks.FOREVER);
    }

    public boolean validate(long stamp) {
        Held held = writes.getOrDefault(stamp, reads.get(stamp));
        if (held == null) {
            return false;
        }
        try {
            held.verify();
            return true;
        } catch (LockLostException lost) {
            return false;
        }
    }

    public void unlockWrite(long stamp) {
        release(writes, stamp);
    }

    public void unlockRead(long stamp) {
        release(reads, stamp);
    }

    public void unlock(long stamp) {
        release(writes.containsKey(stamp) ? writes : reads, stamp);
    }

    public boolean tryUnlockWrite() {
        return tryUnlock(writes);
    }

    public boolean tryUnlockRead() {
        return tryUnlock(reads);
    }

    /** Releases the newest. */
    private static boolean tryUnlock(NavigableMap<Long, Held> from) {
        Map.Entry<Long, Held> newest = from.pollLastEntry();
        return newest != null && newest.getValue().release();
    }

    public boolean isWriteLocked() {
        return Here.isHeld(key) && !isReadLocked();
    }

    public boolean isReadLocked() {
        return getReadLockCount() > 0;
    }

    public int getReadLockCount() {
        return Here.info(key, "holders") instanceof List<?> holders ? holders.size() : 0;
    }

    public Lock asReadLock() {
        return asReading;
    }

    public Lock asWriteLock() {
        return asWriting;
    }

    public ReadWriteLock asReadWriteLock() {
        return new ReadWriteLock() {
            @Override
            public Lock readLock() {
                return asReading;
            }

            @Override
            public Lock writeLock() {
                return asWriting;
            }
        };
    }

    public long tryOptimisticRead() {
        throw new UnsupportedOperationException();
    }

    public long tryConvertToReadLock(long stamp) {
        throw new UnsupportedOperationException();
    }

    public long tryConvertToWriteLock(long stamp) {
        throw new UnsupportedOperationException();
    }

    public long tryConvertToOptimisticRead(long stamp) {
        throw new UnsupportedOperationException();
    }

    public static boolean isLockStamp(long stamp) {
        throw new UnsupportedOperationException();
    }

    public static boolean isReadLockStamp(long stamp) {
        throw new UnsupportedOperationException();
    }

    public static boolean isWriteLockStamp(long stamp) {
        throw new UnsupportedOperationException();
    }

    public static boolean isOptimisticReadStamp(long stamp) {
        throw new UnsupportedOperationException();
    }
}
