package jsr166;

import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;

/** The JDK's class over the reentrant views of a shared lock and an exclusive lock with the same key. */
public class ReentrantReadWriteLock implements ReadWriteLock {
    private final String key = Here.key();
    private final Lock reading = Here.LOCKS.shared(key, Here.LEASE).asReentrantLock();
    private final Lock writing = Here.LOCKS.lock(key, Here.LEASE).asReentrantLock();

    public ReentrantReadWriteLock() {}

    /** The server's queue is fair, whatever is asked for. */
    public ReentrantReadWriteLock(boolean fair) {}

    @Override
    public Lock readLock() {
        return reading;
    }

    @Override
    public Lock writeLock() {
        return writing;
    }
}
