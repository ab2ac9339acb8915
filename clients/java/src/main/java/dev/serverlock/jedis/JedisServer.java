package dev.serverlock.jedis;

import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.ServerException;
import java.util.Map;
import java.util.function.Supplier;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.Pool;

/**
 * A Jedis client, for {@link dev.serverlock.Locks#over}. Commands take connections from its pool, at most two at a
 * time. The pool also opens the connections for waiting and sessions, which it does not count.
 */
@SuppressWarnings("exports") // see module-info.java
public final class JedisServer implements Server {
    private final Supplier<? extends Pool<Connection>> current;
    private volatile JedisNode node;

    private JedisServer(Supplier<? extends Pool<Connection>> current) {
        this.current = current;
    }

    /**
     * A client of one server, from Jedis 7.2.
     *
     * @param client the client
     * @return its server
     */
    public static Server of(RedisClient client) {
        return ofPool(client.getPool());
    }

    /**
     * A client that asks Sentinels for the master, from Jedis 8.
     *
     * @param client the client
     * @return its server
     */
    public static Server of(RedisSentinelClient client) {
        return new JedisServer(() -> only(client.getPrimaryNodesConnectionMap()));
    }

    /**
     * A cluster client, from Jedis 8.
     *
     * @param client the client
     * @return its servers
     */
    public static Server of(RedisClusterClient client) {
        return new JedisCluster(client::getClusterNodes, client::refreshClusterTopology);
    }

    /**
     * The pool of one server: {@code getPool()} of a JedisPooled, in Jedis 5 to 7.
     *
     * @param pool the pool
     * @return its server
     */
    public static Server ofPool(Pool<Connection> pool) {
        return new JedisServer(() -> pool);
    }

    /**
     * The pool of a server that may change, such as the master that Sentinels name; also for versions before Jedis 8.
     *
     * @param pool returns the pool of the server that is the master now, the same one until that changes
     * @return its server
     */
    public static Server ofPool(Supplier<? extends Pool<Connection>> pool) {
        return new JedisServer(pool);
    }

    /**
     * The provider of a client that asks Sentinels, from Jedis 8: older providers do not give their pool away.
     *
     * @param provider the provider
     * @return its server
     */
    public static Server ofSentinels(SentineledConnectionProvider provider) {
        return new JedisServer(() -> only(provider.getConnectionMap()));
    }

    /**
     * The provider of a cluster client; also for versions before Jedis 8.
     *
     * @param provider the provider
     * @return its servers
     */
    public static Server ofCluster(ClusterConnectionProvider provider) {
        return new JedisCluster(
                () -> {
                    Map<String, ConnectionPool> nodes = provider.getNodes();
                    return nodes;
                },
                provider::renewSlotCache);
    }

    @SuppressWarnings("unchecked") // the map's values are connection pools, in all versions
    private static Pool<Connection> only(Map<?, ?> pools) {
        return (Pool<Connection>) pools.values().iterator().next();
    }

    @Override
    public Node node(byte[] key) {
        Pool<Connection> pool;
        try {
            pool = current.get();
        } catch (RuntimeException error) {
            throw new ServerException("no server is known: " + error.getMessage(), error);
        }
        JedisNode known = node;
        if (known == null || known.pool() != pool) {
            node = known = new JedisNode(pool);
        }
        return known;
    }
}
