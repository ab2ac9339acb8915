import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.map.IMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The locks that people use instead, each as its documentation shows it. */
final class Others {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;

    private Others() {}

    interface Body {
        Object run() throws Exception;
    }

    interface Release {
        void run(Object held) throws Exception;
    }

    private static Lock lock(Body acquire, Release release) {
        return new Lock() {
            @Override
            public Object acquire() throws Exception {
                Object held = acquire.run();
                if (held == null || held.equals(false)) {
                    throw new IllegalStateException("not granted");
                }
                return held;
            }

            @Override
            public void release(Object held) throws Exception {
                release.run(held);
            }
        };
    }

    static Lock.Contender redisson(int port, String kind) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        RedissonClient client = Redisson.create(config);
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                if (kind.equals("FencedLock")) {
                    var lock = client.getFencedLock(key);
                    return Others.lock(
                            () -> lock.tryLockAndGetToken(Worker.WAIT_MS, Worker.LEASE_MS, MS), held -> lock.unlock());
                }
                RLock lock = kind.equals("FairLock") ? client.getFairLock(key) : client.getLock(key);
                return Others.lock(() -> lock.tryLock(Worker.WAIT_MS, Worker.LEASE_MS, MS), held -> lock.unlock());
            }

            @Override
            public Lock slots(String key, int permits) {
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(key);
                semaphore.trySetPermits(permits);
                return Others.lock(
                        () -> semaphore.tryAcquire(Worker.WAIT_MS, Worker.LEASE_MS, MS),
                        held -> semaphore.release((String) held));
            }
        };
    }

    /** A client process has one session, however many threads it has. */
    static Lock.Contender curator(int port) {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString("127.0.0.1:" + port)
                .sessionTimeoutMs((int) Worker.LEASE_MS)
                .retryPolicy(new ExponentialBackoffRetry(100, 10))
                .build();
        client.start();
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                InterProcessMutex mutex = new InterProcessMutex(client, "/" + key);
                return Others.lock(() -> mutex.acquire(Worker.WAIT_MS, MS), held -> mutex.release());
            }

            @Override
            public Lock slots(String key, int permits) {
                var semaphore = new InterProcessSemaphoreV2(client, "/" + key, permits);
                return Others.lock(
                        () -> semaphore.acquire(Worker.WAIT_MS, MS), held -> semaphore.returnLease((Lease) held));
            }
        };
    }

    static Lock.Contender hazelcast(int port) {
        ClientConfig config = new ClientConfig();
        config.getNetworkConfig().addAddress("127.0.0.1:" + port);
        config.setProperty("hazelcast.logging.type", "none");
        // It reconnects for as long as the server is away.
        config.getConnectionStrategyConfig().getConnectionRetryConfig().setMaxBackoffMillis(100);
        IMap<String, String> map = HazelcastClient.newHazelcastClient(config).getMap("locks");
        return key -> lock(() -> map.tryLock(key, Worker.WAIT_MS, MS, Worker.LEASE_MS, MS), held -> map.unlock(key));
    }

    /** The limit: a fair lock that never leaves its process. */
    static Lock.Contender inOneProcess() {
        ConcurrentHashMap<String, ReentrantLock> locks = new ConcurrentHashMap<>();
        ConcurrentHashMap<String, Semaphore> semaphores = new ConcurrentHashMap<>();
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                ReentrantLock lock = locks.computeIfAbsent(key, name -> new ReentrantLock(true));
                return Others.lock(() -> lock.tryLock(Worker.WAIT_MS, MS), held -> lock.unlock());
            }

            @Override
            public Lock slots(String key, int permits) {
                Semaphore semaphore = semaphores.computeIfAbsent(key, name -> new Semaphore(permits, true));
                return Others.lock(() -> semaphore.tryAcquire(Worker.WAIT_MS, MS), held -> semaphore.release());
            }
        };
    }
}
