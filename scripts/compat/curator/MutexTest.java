import dev.serverlock.Locks;
import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.TestInterProcessMutexBase;
import org.junit.jupiter.api.AfterEach;
import redis.clients.jedis.RedisClient;

/** The tests that Curator has for a lock, with {@code asReentrantLock()}. Each Curator client has its own Locks. */
public class MutexTest extends TestInterProcessMutexBase {
    private final RedisClient client = RedisClient.create("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
    private final Map<CuratorFramework, Locks> locks = new ConcurrentHashMap<>();
    private final String path = LOCK_BASE_PATH + UUID.randomUUID();

    @Override
    protected InterProcessLock makeLock(CuratorFramework theirs) {
        return new Mutex(locks.computeIfAbsent(theirs, any -> Locks.over(JedisServer.of(client)))
                .lock(path, Duration.ofSeconds(60))
                .asReentrantLock());
    }

    @AfterEach
    void close() {
        locks.values().forEach(Locks::close);
        client.close();
    }

    private static final class Mutex implements InterProcessLock {
        private final Lock lock;
        private final AtomicInteger holds = new AtomicInteger();

        Mutex(Lock lock) {
            this.lock = lock;
        }

        @Override
        public void acquire() throws Exception {
            lock.lockInterruptibly();
            holds.incrementAndGet();
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) throws Exception {
            boolean isAcquired = lock.tryLock(time, unit);
            if (isAcquired) {
                holds.incrementAndGet();
            }
            return isAcquired;
        }

        @Override
        public void release() {
            lock.unlock();
            holds.decrementAndGet();
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return holds.get() > 0;
        }
    }
}
