import dev.serverlock.Held;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;

/** One process of the client benchmark, in Java: Worker CONTENDER PORT. run.py describes its input. */
public class Worker {
    static final Duration LEASE = Duration.ofSeconds(30);
    static final String KEY = "bench:" + ProcessHandle.current().pid();

    interface Lock {
        Object acquire() throws Exception;

        void release(Object held) throws Exception;
    }

    interface Contender {
        Lock lock(String key, long waitMs);
    }

    static Contender of(Locks locks) {
        return (key, waitMs) -> {
            ServerLock plain = locks.lock(key, LEASE);
            ServerLock lock = waitMs > 0 ? plain.waiting(Duration.ofMillis(waitMs)) : plain;
            return new Lock() {
                @Override
                public Object acquire() throws InterruptedException {
                    return lock.acquire();
                }

                @Override
                public void release(Object held) {
                    ((Held) held).release();
                }
            };
        };
    }

    interface Call {
        Object run(String... words);
    }

    /** The two commands. */
    static Contender raw(Call call) {
        return (key, waitMs) -> new Lock() {
            @Override
            public Object acquire() {
                String lease = "" + LEASE.toMillis();
                return waitMs > 0
                        ? call.run("LOCK.ACQUIRE", key, "PX", lease, "WAIT", "" + waitMs)
                        : call.run("LOCK.ACQUIRE", key, "PX", lease);
            }

            @Override
            public void release(Object token) {
                call.run("LOCK.RELEASE", key, token.toString());
            }
        };
    }

    static Call jedis(int port) {
        // No time-out: with one, the client would give up in the middle of a wait.
        RedisClient client = RedisClient.builder()
                .hostAndPort("127.0.0.1", port)
                .clientConfig(DefaultJedisClientConfig.builder()
                        .socketTimeoutMillis(0)
                        .build())
                .build();
        return words -> {
            CommandArguments arguments = new CommandArguments(() -> words[0].getBytes());
            for (int at = 1; at < words.length; at++) {
                arguments.add(words[at]);
            }
            return client.executeCommand(new CommandObject<>(arguments, BuilderFactory.RAW_OBJECT));
        };
    }

    static Call lettuce(int port) {
        var client = io.lettuce.core.RedisClient.create(RedisURI.create("127.0.0.1", port));
        var connection = client.connect();
        connection.setTimeout(Duration.ofHours(1));
        var commands = connection.sync();
        return words -> {
            CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
            for (int at = 1; at < words.length; at++) {
                arguments.add(words[at]);
            }
            ProtocolKeyword name = () -> words[0].getBytes();
            return commands.dispatch(name, new IntegerOutput<>(StringCodec.UTF8), arguments);
        };
    }

    static Contender redisson(int port, boolean isFair) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        var client = Redisson.create(config);
        return (key, waitMs) -> {
            RLock lock = isFair ? client.getFairLock(key) : client.getLock(key);
            return new Lock() {
                @Override
                public Object acquire() throws InterruptedException {
                    if (!lock.tryLock(waitMs, LEASE.toMillis(), TimeUnit.MILLISECONDS)) {
                        throw new IllegalStateException(key);
                    }
                    return lock;
                }

                @Override
                public void release(Object held) {
                    lock.unlock();
                }
            };
        };
    }

    static Contender contender(String name, int port) {
        switch (name) {
            case "jedis package":
                return of(Locks.over(JedisServer.of(RedisClient.create("127.0.0.1", port))));
            case "jedis raw":
                return raw(jedis(port));
            case "lettuce package":
                RedisURI uri = RedisURI.create("127.0.0.1", port);
                var client = io.lettuce.core.RedisClient.create(uri);
                return of(Locks.over(LettuceServer.of(client, uri, client.connect())));
            case "lettuce raw":
                return raw(lettuce(port));
            case "redisson RLock":
                return redisson(port, false);
            case "redisson FairLock":
                return redisson(port, true);
            default:
                throw new IllegalArgumentException("no contender " + name);
        }
    }

    static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    static String pairs(Contender contender, int count) throws Exception {
        Lock lock = contender.lock(KEY, 0);
        double used = cpu();
        long began = System.nanoTime();
        for (int pair = 0; pair < count; pair++) {
            lock.release(lock.acquire());
        }
        return "[" + (System.nanoTime() - began) / 1e9 + ", " + (cpu() - used) + "]";
    }

    static String hot(Contender contender, String key, double seconds) throws Exception {
        double used = cpu();
        String waits = waitsOf(contender.lock(key, 60_000), seconds);
        return "[" + waits + ", " + (cpu() - used) + "]";
    }

    static String crowd(Contender contender, String key, double seconds, int clients) throws Exception {
        double used = cpu();
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        List<String> every = new ArrayList<>();
        try {
            Callable<String> client = () -> waitsOf(contender.lock(key, 60_000), seconds);
            for (Future<String> waits : threads.invokeAll(Collections.nCopies(clients, client))) {
                every.add(waits.get());
            }
        } finally {
            threads.shutdown();
        }
        return "[" + every + ", " + (cpu() - used) + "]";
    }

    /** The waits of one client's grants, in microseconds. */
    static String waitsOf(Lock lock, double seconds) throws Exception {
        List<Long> waits = new ArrayList<>();
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            Object held = lock.acquire();
            waits.add((System.nanoTime() - began) / 1000);
            lock.release(held);
        }
        return waits.toString();
    }

    static String waits(Contender contender, int count) {
        for (int number = 0; number < count; number++) {
            Lock lock = contender.lock("waits:" + number, 600_000);
            Thread thread = new Thread(() -> {
                try {
                    lock.acquire();
                } catch (Exception ended) {
                    // The wait ends with the process.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        return "null";
    }

    static String rss() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return line.replaceAll("\\D", "");
            }
        }
        return "0";
    }

    public static void main(String[] args) throws Exception {
        Contender contender = contender(args[0], Integer.parseInt(args[1]));
        pairs(contender, 3); // connects, loads scripts
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "pair" -> System.out.println(pairs(contender, Integer.parseInt(words[1])));
                case "hot" -> System.out.println(hot(contender, words[1], Double.parseDouble(words[2])));
                case "crowd" ->
                    System.out.println(
                            crowd(contender, words[1], Double.parseDouble(words[2]), Integer.parseInt(words[3])));
                case "waits" -> System.out.println(waits(contender, Integer.parseInt(words[1])));
                default -> System.out.println(rss());
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
