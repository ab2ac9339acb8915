package dev.serverlock.shedlock;

import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * A lock provider for ShedLock 5 to 7. As usual in ShedLock, a lock is not renewed: it ends after
 * {@code lockAtMostFor}, and others can acquire it after the server's margin, one second by default. The nodes' clocks
 * do not matter.
 */
@SuppressWarnings("exports") // see module-info.java
public final class ServerLockProvider implements ExtensibleLockProvider {
    private static final Duration SHORTEST = Duration.ofMillis(1);

    private final Locks locks;
    private final String prefix;
    private final String owner;

    /**
     * Locks with the names as keys.
     *
     * @param locks the locks of the application's client
     */
    public ServerLockProvider(Locks locks) {
        this(locks, "", null);
    }

    private ServerLockProvider(Locks locks, String prefix, String owner) {
        this.locks = Objects.requireNonNull(locks, "locks");
        this.prefix = prefix;
        this.owner = owner;
    }

    /**
     * Prepends a prefix to the names.
     *
     * @param prefix the prefix
     * @return a copy with this option
     */
    public ServerLockProvider withPrefix(String prefix) {
        return new ServerLockProvider(locks, Objects.requireNonNull(prefix, "prefix"), owner);
    }

    /**
     * Sets a label that operators see, for example the name of this host.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public ServerLockProvider withOwner(String owner) {
        return new ServerLockProvider(locks, prefix, Objects.requireNonNull(owner, "owner"));
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            ServerLock lock = locks.lock(prefix + configuration.getName(), lease(configuration))
                    .maxHold(SHORTEST);
            Held held = (owner == null ? lock.withoutOwner() : lock.owner(owner)).acquire();
            return Optional.of(new Lock(configuration, held));
        } catch (LockRefusedException somebodyElse) {
            return Optional.empty();
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new LockException(interrupt.getMessage(), interrupt);
        } catch (dev.serverlock.LockException error) {
            throw new LockException(error.getMessage(), error);
        }
    }

    private static Duration lease(LockConfiguration configuration) {
        Duration lease = configuration.getLockAtMostFor();
        return lease.compareTo(SHORTEST) < 0 ? SHORTEST : lease;
    }

    private static final class Lock extends AbstractSimpleLock {
        private final Held held;

        Lock(LockConfiguration configuration, Held held) {
            super(configuration);
            this.held = held;
        }

        @Override
        protected void doUnlock() {
            try {
                // ShedLock does not treat an expired lock as an error.
                held.release(Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil()));
            } catch (dev.serverlock.LockException error) {
                throw new LockException(error.getMessage(), error);
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            try {
                held.extend(lease(configuration));
                return Optional.of(new Lock(configuration, held));
            } catch (LockLostException ended) {
                return Optional.empty();
            } catch (dev.serverlock.LockException error) {
                throw new LockException(error.getMessage(), error);
            }
        }
    }
}
