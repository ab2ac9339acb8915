import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's locks over Sentinel. Without a lease of their own they are renewed: its watchdog. */
final class RedissonLocks implements Lock.Maker {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private final RedissonClient client;
    private final long leaseMs;

    RedissonLocks(List<String> sentinels, long leaseMs) {
        Config config = new Config();
        config.setLockWatchdogTimeout(leaseMs);
        config.useSentinelServers()
                .setMasterName("locks")
                .addSentinelAddress(
                        sentinels.stream().map(at -> "redis://" + at).toArray(String[]::new));
        client = Redisson.create(config);
        this.leaseMs = leaseMs;
    }

    @Override
    public Lock mutex(String key) {
        RLock lock = client.getLock(key);
        return () -> lock.tryLock(Lock.WAIT_MS, MS) ? new LockGrant(lock, 0) : null;
    }

    @Override
    public Lock fenced(String key) {
        RFencedLock lock = client.getFencedLock(key);
        return () -> {
            Long token = lock.tryLockAndGetToken(Lock.WAIT_MS, MS);
            return token == null ? null : new LockGrant(lock, token);
        };
    }

    private record LockGrant(RLock lock, long token) implements Lock.Grant {
        @Override
        public boolean isHeld() {
            return lock.isHeldByCurrentThread();
        }

        @Override
        public boolean release() {
            try {
                lock.unlock();
                return true;
            } catch (IllegalMonitorStateException lost) {
                return false;
            }
        }
    }

    /** Nothing renews a permit, so its lease is longer than the work. */
    @Override
    public Lock semaphore(String key, int permits) {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(key);
        semaphore.trySetPermits(permits);
        return () -> {
            String permit = semaphore.tryAcquire(Lock.WAIT_MS, 2 * leaseMs, MS);
            return permit == null
                    ? null
                    : new PermitGrant(semaphore, permit, System.nanoTime() + MS.toNanos(2 * leaseMs));
        };
    }

    private record PermitGrant(RPermitExpirableSemaphore semaphore, String permit, long end) implements Lock.Grant {
        @Override
        public boolean isHeld() {
            return System.nanoTime() < end;
        }

        @Override
        public boolean release() {
            return semaphore.tryRelease(permit);
        }
    }
}
