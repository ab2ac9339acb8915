import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.MasterSlaveServersConfig;

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

    /**
     * It waits for the replicas by itself, if it knows them: the ports after the first. subscriptions: how many each of
     * its 50 connections may have.
     */
    static Lock.Contender redisson(int[] ports, String kind, int subscriptions) {
        Config config = new Config();
        if (ports.length == 1) {
            config.useSingleServer()
                    .setAddress("redis://127.0.0.1:" + ports[0])
                    .setSubscriptionsPerConnection(subscriptions);
        } else {
            MasterSlaveServersConfig group = config.useMasterSlaveServers();
            group.setMasterAddress("redis://127.0.0.1:" + ports[0]);
            for (int at = 1; at < ports.length; at++) {
                group.addSlaveAddress("redis://127.0.0.1:" + ports[at]);
            }
        }
        RedissonClient client = Redisson.create(config);
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                if (kind.equals("FencedLock")) {
                    var lock = client.getFencedLock(key);
                    return Others.lock(
                            () -> lock.tryLockAndGetToken(Worker.WAIT_MS, Worker.LEASE_MS, MS), held -> lock.unlock());
                }
                return waiting(kind.equals("FairLock") ? client.getFairLock(key) : client.getLock(key));
            }

            private Lock waiting(RLock lock) {
                return Others.lock(() -> lock.tryLock(Worker.WAIT_MS, Worker.LEASE_MS, MS), held -> lock.unlock());
            }

            @Override
            public Lock reader(String key) {
                return waiting(client.getReadWriteLock(key).readLock());
            }

            @Override
            public Lock writer(String key) {
                return waiting(client.getReadWriteLock(key).writeLock());
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
    static Lock.Contender curator(int[] ports) {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(addresses(ports).collect(Collectors.joining(",")))
                .sessionTimeoutMs((int) Worker.LEASE_MS)
                .retryPolicy(new ExponentialBackoffRetry(100, 10))
                .build();
        client.start();
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                return waiting(new InterProcessMutex(client, "/" + key));
            }

            private Lock waiting(InterProcessMutex mutex) {
                return Others.lock(() -> mutex.acquire(Worker.WAIT_MS, MS), held -> mutex.release());
            }

            @Override
            public Lock reader(String key) {
                return waiting(new InterProcessReadWriteLock(client, "/" + key).readLock());
            }

            @Override
            public Lock writer(String key) {
                return waiting(new InterProcessReadWriteLock(client, "/" + key).writeLock());
            }

            @Override
            public Lock slots(String key, int permits) {
                var semaphore = new InterProcessSemaphoreV2(client, "/" + key, permits);
                return Others.lock(
                        () -> semaphore.acquire(Worker.WAIT_MS, MS), held -> semaphore.returnLease((Lease) held));
            }
        };
    }

    static Lock.Contender hazelcast(int[] ports) throws InterruptedException {
        ClientConfig config = new ClientConfig();
        config.getNetworkConfig().setAddresses(addresses(ports).toList());
        config.setProperty("hazelcast.logging.type", "none");
        // It reconnects for as long as the server is away.
        config.getConnectionStrategyConfig().getConnectionRetryConfig().setMaxBackoffMillis(100);
        HazelcastInstance client = HazelcastClient.newHazelcastClient(config);
        while (client.getCluster().getMembers().size() < ports.length) {
            Thread.sleep(100); // they have not found each other yet
        }
        IMap<String, String> map = client.getMap("locks");
        return key -> lock(() -> map.tryLock(key, Worker.WAIT_MS, MS, Worker.LEASE_MS, MS), held -> map.unlock(key));
    }

    private static Stream<String> addresses(int[] ports) {
        return Arrays.stream(ports).mapToObj(port -> "127.0.0.1:" + port);
    }

    /** The limit: a fair lock that never leaves its process. */
    static Lock.Contender inOneProcess() {
        ConcurrentHashMap<String, ReentrantLock> locks = new ConcurrentHashMap<>();
        ConcurrentHashMap<String, Semaphore> semaphores = new ConcurrentHashMap<>();
        ConcurrentHashMap<String, ReadWriteLock> pairs = new ConcurrentHashMap<>();
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                return waiting(locks.computeIfAbsent(key, name -> new ReentrantLock(true)));
            }

            private Lock waiting(java.util.concurrent.locks.Lock lock) {
                return Others.lock(() -> lock.tryLock(Worker.WAIT_MS, MS), held -> lock.unlock());
            }

            private ReadWriteLock pair(String key) {
                return pairs.computeIfAbsent(key, name -> new ReentrantReadWriteLock(true));
            }

            @Override
            public Lock reader(String key) {
                return waiting(pair(key).readLock());
            }

            @Override
            public Lock writer(String key) {
                return waiting(pair(key).writeLock());
            }

            @Override
            public Lock slots(String key, int permits) {
                Semaphore semaphore = semaphores.computeIfAbsent(key, name -> new Semaphore(permits, true));
                return Others.lock(() -> semaphore.tryAcquire(Worker.WAIT_MS, MS), held -> semaphore.release());
            }
        };
    }
}
