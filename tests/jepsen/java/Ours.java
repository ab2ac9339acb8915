import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisSentinelClient;

/** LOCK.* through the package for Java, over Jedis and Sentinel. */
final class Ours implements Lock.Maker {
    private final Locks locks;
    private final Duration lease;

    Ours(List<String> sentinels, long leaseMs) {
        RedisSentinelClient client = RedisSentinelClient.builder()
                .masterName("locks")
                .sentinels(sentinels.stream().map(HostAndPort::from).collect(Collectors.toSet()))
                .build();
        locks = Locks.over(JedisServer.of(client));
        lease = Duration.ofMillis(leaseMs);
    }

    @Override
    public Lock mutex(String key) {
        return of(locks.lock(key, lease));
    }

    @Override
    public Lock fenced(String key) {
        return mutex(key);
    }

    @Override
    public Lock semaphore(String key, int permits) {
        return of(locks.limit(key, permits, lease));
    }

    private static Lock of(ServerLock lock) {
        ServerLock waiting = lock.waiting(Duration.ofMillis(Lock.WAIT_MS));
        return () -> {
            try {
                return new HeldGrant(waiting.acquire());
            } catch (LockRefusedException refused) {
                return null;
            }
        };
    }

    private record HeldGrant(Held held) implements Lock.Grant {
        @Override
        public long token() {
            return held.token();
        }

        @Override
        public boolean isHeld() {
            try {
                held.check();
                return true;
            } catch (LockLostException lost) {
                return false;
            }
        }

        @Override
        public boolean release() {
            return held.release();
        }
    }
}
