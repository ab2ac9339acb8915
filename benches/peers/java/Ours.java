import dev.serverlock.Held;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import java.time.Duration;
import java.util.UUID;
import java.util.function.UnaryOperator;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.SetParams;

/** LOCK.* through the package and as plain commands, and SET with DEL beside them. */
final class Ours {
    private static final Duration LEASE = Duration.ofMillis(Worker.LEASE_MS);
    private static final Duration WAIT = Duration.ofMillis(Worker.WAIT_MS);

    private Ours() {}

    static Lock.Contender jedis(int port, UnaryOperator<ServerLock> options) {
        return of(Locks.over(JedisServer.of(client(port))), options);
    }

    static Lock.Contender lettuce(int port) {
        RedisURI uri = RedisURI.create("127.0.0.1", port);
        var client = io.lettuce.core.RedisClient.create(uri);
        return of(Locks.over(LettuceServer.of(client, uri, client.connect())), UnaryOperator.identity());
    }

    private static Lock.Contender of(Locks locks, UnaryOperator<ServerLock> options) {
        return new Lock.Contender() {
            @Override
            public Lock lock(String key) {
                return held(locks.lock(key, LEASE));
            }

            @Override
            public Lock slots(String key, int permits) {
                return held(locks.limit(key, permits, LEASE));
            }

            @Override
            public Lock reader(String key) {
                return held(locks.shared(key, LEASE));
            }

            private Lock held(ServerLock free) {
                return Ours.held(options.apply(free.waiting(WAIT)));
            }
        };
    }

    private static Lock held(ServerLock lock) {
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

    /**
     * The least that a lock in Redis can cost a client: two commands, for a free lock. It is not safe, because DEL
     * deletes any holder's lock.
     */
    static Lock.Contender setAndDel(int port) {
        RedisClient client = client(port);
        SetParams once = SetParams.setParams().nx().px(Worker.LEASE_MS);
        return key -> setAndDel(secret -> client.set(key, secret, once), () -> client.del(key));
    }

    static Lock.Contender setAndDelOverLettuce(int port) {
        RedisURI uri = RedisURI.create("127.0.0.1", port);
        var commands = io.lettuce.core.RedisClient.create(uri).connect().sync();
        SetArgs once = SetArgs.Builder.nx().px(Worker.LEASE_MS);
        return key -> setAndDel(secret -> commands.set(key, secret, once), () -> commands.del(key));
    }

    private static Lock setAndDel(UnaryOperator<String> set, Runnable del) {
        return new Lock() {
            @Override
            public Object acquire() {
                String secret = UUID.randomUUID().toString();
                if (set.apply(secret) == null) {
                    throw new IllegalStateException("not granted");
                }
                return secret;
            }

            @Override
            public void release(Object secret) {
                del.run();
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
