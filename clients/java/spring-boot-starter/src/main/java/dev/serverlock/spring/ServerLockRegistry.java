package dev.serverlock.spring;

import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.Locks;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * Spring Integration's registry of locks. A thread that holds a lock may lock it again, also through another call of
 * {@link #obtain}. Locks are renewed while they are held, so {@link #renewLock} is seldom needed.
 *
 * <p>If a lock is lost, {@code unlock} throws {@link LockLostException} in the thread that held it. Until then,
 * {@code lock} and {@code tryLock} throw it too: a thread that lost a lock must not go on as if it still had it. The
 * locks have no conditions.
 */
public final class ServerLockRegistry implements RenewableLockRegistry {
    private final Locks locks;
    private final String prefix;
    private final Duration lease;
    /** What each thread holds, by name. */
    private final ThreadLocal<Map<String, Owned>> mine = new ThreadLocal<>();

    /**
     * Creates a registry.
     *
     * @param locks the locks of the application's client
     * @param prefix what precedes the names in the keys
     * @param lease how long a crashed holder keeps a lock
     */
    public ServerLockRegistry(Locks locks, String prefix, Duration lease) {
        this.locks = Objects.requireNonNull(locks, "locks");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.lease = Objects.requireNonNull(lease, "lease");
        locks.lock(prefix, lease); // throws for a bad lease
    }

    /** A lock that a thread holds, and how often it has locked it. */
    private static final class Owned {
        final Held held;
        int count = 1;

        Owned(Held held) {
            this.held = held;
        }
    }

    /**
     * Returns a lock, which costs nothing until it is locked.
     *
     * @param lockKey its name, a String
     * @return the lock
     */
    @Override
    public Lock obtain(Object lockKey) {
        return new Named(name(lockKey));
    }

    /**
     * Renews a lock's lease now, in addition to the automatic renewals.
     *
     * @param lockKey its name, a String
     * @throws IllegalStateException if this thread does not hold it
     * @throws LockLostException if it is lost
     */
    @Override
    public void renewLock(Object lockKey) {
        String name = name(lockKey);
        Owned owned = owned(name);
        if (owned == null) {
            throw new IllegalStateException("this thread does not hold the lock \"" + name + "\"");
        }
        owned.held.extend(lease);
    }

    private static String name(Object lockKey) {
        if (lockKey instanceof String name) {
            return name;
        }
        throw new IllegalArgumentException("the key of a lock must be a String, not " + lockKey);
    }

    private Owned owned(String name) {
        Map<String, Owned> all = mine.get();
        return all == null ? null : all.get(name);
    }

    private void acquire(String name, Duration wait) throws InterruptedException {
        Owned owned = owned(name);
        if (owned != null) {
            owned.held.check();
            owned.count++;
            return;
        }
        Held held = locks.lock(prefix + name, lease).reentrant().waiting(wait).acquire();
        if (mine.get() == null) {
            mine.set(new HashMap<>());
        }
        mine.get().put(name, new Owned(held));
    }

    private void release(String name) {
        Owned owned = owned(name);
        if (owned == null) {
            throw new IllegalMonitorStateException("this thread does not hold the lock \"" + name + "\"");
        }
        owned.count--;
        if (owned.count == 0) {
            Map<String, Owned> all = mine.get();
            all.remove(name);
            if (all.isEmpty()) {
                mine.remove();
            }
            owned.held.close();
        }
    }

    private final class Named implements Lock {
        private final String name;

        Named(String name) {
            this.name = name;
        }

        @Override
        public void lock() {
            boolean wasInterrupted = false;
            try {
                while (true) {
                    try {
                        acquire(name, Locks.FOREVER);
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
            acquire(name, Locks.FOREVER);
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
                acquire(name, Duration.ofNanos(Math.max(0, unit.toNanos(time))));
                return true;
            } catch (LockRefusedException somebodyElse) {
                return false;
            }
        }

        @Override
        public void unlock() {
            release(name);
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a server lock has no conditions");
        }

        @Override
        public String toString() {
            return "Lock[" + prefix + name + "]";
        }
    }
}
