import dev.serverlock.Held;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;

/** LOCK.* through the package, and as plain commands. */
final class Ours {
    private static final Duration LEASE = Duration.ofMillis(Worker.LEASE_MS);
    private static final Duration WAIT = Duration.ofMillis(Worker.WAIT_MS);

    private Ours() {}

    static Lock.Contender jedis(int port, boolean isSession) {
        return of(Locks.over(JedisServer.of(client(port))), isSession);
    }

    static Lock.Contender lettuce(int port) {
        RedisURI uri = RedisURI.create("127.0.0.1", port);
        var client = io.lettuce.core.RedisClient.create(uri);
        return of(Locks.over(LettuceServer.of(client, uri, client.connect())), false);
    }

    private static Lock.Contender of(Locks locks, boolean isSession) {
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                return held(locks.lock(key, LEASE), isSession);
            }

            @Override
            public Lock slots(String key, int permits) {
                return held(locks.limit(key, permits, LEASE), isSession);
            }
        };
    }

    private static Lock held(ServerLock free, boolean isSession) {
        ServerLock waiting = free.waiting(WAIT);
        ServerLock lock = isSession ? waiting.session() : waiting;
        return new Lock() {
            @Override
            public Object acquire() throws InterruptedException {
                return lock.acquire();
            }

            @Override
            public void release(Object held) {
                ((Held) held).release();
            }

            @Override
            public long token(Object held) {
                return ((Held) held).token();
            }
        };
    }

    /** The two commands, with a connection for each client. */
    static Lock.Contender raw(int port) {
        RedisClient client = client(port);
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                return commands(client, key);
            }

            @Override
            public Lock slots(String key, int permits) {
                return commands(client, key, "LIMIT", "" + permits);
            }
        };
    }

    private static Lock commands(RedisClient client, String key, String... kind) {
        String[] acquire = new String[6 + kind.length];
        String[] words = {"LOCK.ACQUIRE", key, "PX", "" + Worker.LEASE_MS, "WAIT", "" + Worker.WAIT_MS};
        System.arraycopy(words, 0, acquire, 0, words.length);
        System.arraycopy(kind, 0, acquire, words.length, kind.length);
        return new Lock() {
            @Override
            public Object acquire() {
                Object token = call(client, acquire);
                if (token == null) {
                    throw new IllegalStateException("not granted: " + key);
                }
                return token;
            }

            @Override
            public void release(Object token) {
                call(client, "LOCK.RELEASE", key, token.toString());
            }
        };
    }

    private static Object call(RedisClient client, String... words) {
        CommandArguments arguments = new CommandArguments(() -> words[0].getBytes());
        for (int at = 1; at < words.length; at++) {
            arguments.add(words[at]);
        }
        return client.executeCommand(new CommandObject<>(arguments, BuilderFactory.RAW_OBJECT));
    }

    /** Without a time-out, because plain commands wait in the server, and with a connection for each client. */
    private static RedisClient client(int port) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(Worker.MOST_CLIENTS);
        pool.setMaxIdle(Worker.MOST_CLIENTS);
        return RedisClient.builder()
                .hostAndPort("127.0.0.1", port)
                .poolConfig(pool)
                .clientConfig(DefaultJedisClientConfig.builder()
                        .socketTimeoutMillis(0)
                        .build())
                .build();
    }
}
