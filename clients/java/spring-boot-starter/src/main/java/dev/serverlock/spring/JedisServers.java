package dev.serverlock.spring;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.spi.Cluster;
import java.util.Objects;
import java.util.Set;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration.WithAuthentication;
import org.springframework.data.redis.connection.RedisNode;
import org.springframework.data.redis.connection.RedisPassword;
import org.springframework.data.redis.connection.RedisSentinelConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisClientConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;

/**
 * Connects to a Jedis connection factory's server, with its settings. The pool is the locks' own, of at most eight
 * connections: the factory's is closed when the application begins to stop, before beans can release their locks.
 */
final class JedisServers {
    private final JedisConnectionFactory factory;
    private final JedisClientConfiguration configuration;

    JedisServers(JedisConnectionFactory factory) {
        this.factory = factory;
        configuration = factory.getClientConfiguration();
    }

    LazyServer<?> server() {
        RedisClusterConfiguration cluster = factory.getClusterConfiguration();
        if (cluster != null) {
            JedisClientConfig config = config(cluster, 0);
            Kept<ClusterConnectionProvider> provider =
                    new Kept<>(() -> new ClusterConnectionProvider(addresses(cluster.getClusterNodes()), config));
            return new LazyServer.OfCluster(
                    () -> (Cluster) JedisServer.ofCluster(provider.get()),
                    false,
                    () -> provider.close(ClusterConnectionProvider::close));
        }
        RedisSentinelConfiguration sentinel = factory.getSentinelConfiguration();
        if (sentinel != null) {
            JedisClientConfig config = config(sentinel, factory.getDatabase());
            JedisClientConfig forSentinels = config(sentinel.getSentinelUsername(), sentinel.getSentinelPassword(), 0);
            String master = Objects.requireNonNull(sentinel.getMaster()).getName();
            Kept<MasterPool> pool = new Kept<>(() -> new MasterPool(
                    new SentineledConnectionProvider(master, config, addresses(sentinel.getSentinels()), forSentinels),
                    config));
            return new LazyServer<>(() -> JedisServer.ofPool(pool.get()), false, () -> pool.close(MasterPool::close));
        }
        RedisStandaloneConfiguration one = factory.getStandaloneConfiguration();
        HostAndPort address = new HostAndPort(factory.getHostName(), factory.getPort());
        ConnectionPool pool = new ConnectionPool(address, config(one, factory.getDatabase()));
        return new LazyServer<>(() -> JedisServer.ofPool(pool), false, pool::close);
    }

    /** The pool of the master that the Sentinels name. Before Jedis 8, their provider does not give its own away. */
    private static final class MasterPool implements Supplier<ConnectionPool> {
        private final SentineledConnectionProvider sentinels;
        private final JedisClientConfig config;
        private HostAndPort master;
        private ConnectionPool pool;

        MasterPool(SentineledConnectionProvider sentinels, JedisClientConfig config) {
            this.sentinels = sentinels;
            this.config = config;
        }

        @Override
        public synchronized ConnectionPool get() {
            HostAndPort now = sentinels.getCurrentMaster();
            if (!now.equals(master)) {
                if (pool != null) {
                    pool.close();
                }
                pool = new ConnectionPool(now, config);
                master = now;
            }
            return pool;
        }

        synchronized void close() {
            sentinels.close();
            if (pool != null) {
                pool.close();
            }
        }
    }

    private static Set<HostAndPort> addresses(Set<RedisNode> nodes) {
        return nodes.stream()
                .map(node -> new HostAndPort(node.getHost(), node.getPort()))
                .collect(Collectors.toSet());
    }

    private JedisClientConfig config(WithAuthentication source, int database) {
        return config(source.getUsername(), source.getPassword(), database);
    }

    private JedisClientConfig config(String username, RedisPassword password, int database) {
        DefaultJedisClientConfig.Builder builder = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(
                        Math.toIntExact(configuration.getConnectTimeout().toMillis()))
                .socketTimeoutMillis(
                        Math.toIntExact(configuration.getReadTimeout().toMillis()))
                .database(database)
                .ssl(configuration.isUseSsl());
        configuration.getClientName().ifPresent(builder::clientName);
        if (username != null && !username.isEmpty()) {
            builder.user(username);
        }
        password.toOptional().map(String::new).ifPresent(builder::password);
        configuration.getSslSocketFactory().ifPresent(builder::sslSocketFactory);
        configuration.getHostnameVerifier().ifPresent(builder::hostnameVerifier);
        configuration.getSslParameters().ifPresent(builder::sslParameters);
        configuration.getCustomizer().ifPresent(customizer -> customizer.customize(builder));
        return builder.build();
    }
}
