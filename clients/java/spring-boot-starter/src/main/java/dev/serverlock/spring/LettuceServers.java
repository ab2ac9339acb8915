package dev.serverlock.spring;

import dev.serverlock.lettuce.LettuceServer;
import dev.serverlock.spi.Cluster;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCredentialsProvider;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import java.util.List;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration.WithAuthentication;
import org.springframework.data.redis.connection.RedisSentinelConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConverters;
import org.springframework.data.redis.connection.lettuce.RedisCredentialsProviderFactory;

/**
 * Connects to a Lettuce connection factory's server, with its settings and threads. The client is the locks' own: the
 * factory's is closed when the application begins to stop, before beans can release their locks.
 */
final class LettuceServers {
    private final LettuceConnectionFactory factory;
    private final LettuceClientConfiguration configuration;

    LettuceServers(LettuceConnectionFactory factory) {
        this.factory = factory;
        configuration = factory.getClientConfiguration();
    }

    LazyServer<?> server() {
        RedisClusterConfiguration cluster = factory.getClusterConfiguration();
        if (cluster != null) {
            return cluster(cluster);
        }
        RedisURI uri = uri();
        RedisClient client = configuration
                .getClientResources()
                .map(resources -> RedisClient.create(resources, uri))
                .orElseGet(() -> RedisClient.create(uri));
        configuration.getClientOptions().ifPresent(client::setOptions);
        Kept<StatefulRedisConnection<byte[], byte[]>> connection =
                new Kept<>(() -> client.connect(ByteArrayCodec.INSTANCE));
        return new LazyServer<>(() -> LettuceServer.of(client, uri, connection), true, client::shutdown);
    }

    private LazyServer<?> cluster(RedisClusterConfiguration cluster) {
        List<RedisURI> uris = cluster.getClusterNodes().stream()
                .map(node -> with(cluster, RedisURI.create(node.getHost(), node.getPort())))
                .toList();
        RedisClusterClient client = configuration
                .getClientResources()
                .map(resources -> RedisClusterClient.create(resources, uris))
                .orElseGet(() -> RedisClusterClient.create(uris));
        configuration.getClientOptions().map(LettuceServers::forCluster).ifPresent(client::setOptions);
        return new LazyServer.OfCluster(
                () -> (Cluster) LettuceServer.of(client, client.connect(ByteArrayCodec.INSTANCE)),
                true,
                client::shutdown);
    }

    private static ClusterClientOptions forCluster(ClientOptions options) {
        return options instanceof ClusterClientOptions same
                ? same
                : ClusterClientOptions.builder(options).build();
    }

    private RedisURI uri() {
        RedisSentinelConfiguration sentinel = factory.getSentinelConfiguration();
        if (sentinel != null) {
            RedisURI uri = LettuceConverters.sentinelConfigurationToRedisURI(sentinel);
            uri.getSentinels().forEach(this::encrypt);
            configuration.getRedisCredentialsProviderFactory().ifPresent(credentials -> {
                RedisCredentialsProvider provider = credentials.createSentinelCredentialsProvider(sentinel);
                uri.getSentinels().forEach(one -> one.setCredentialsProvider(provider));
            });
            return with(sentinel, uri);
        }
        if (factory.getSocketConfiguration() != null) {
            String path = factory.getSocketConfiguration().getSocket();
            return with(
                    factory.getSocketConfiguration(),
                    RedisURI.Builder.socket(path).build());
        }
        return with(factory.getStandaloneConfiguration(), RedisURI.create(factory.getHostName(), factory.getPort()));
    }

    /** Applies the factory's settings to an address. */
    private RedisURI with(RedisConfiguration source, RedisURI uri) {
        encrypt(uri);
        configuration.getClientName().ifPresent(uri::setClientName);
        uri.setDatabase(factory.getDatabase());
        RedisCredentialsProviderFactory credentials =
                configuration.getRedisCredentialsProviderFactory().orElse(new RedisCredentialsProviderFactory() {});
        if (source instanceof WithAuthentication) {
            RedisCredentialsProvider provider = credentials.createCredentialsProvider(source);
            if (provider != null) {
                uri.setCredentialsProvider(provider);
            }
        }
        return uri;
    }

    private void encrypt(RedisURI uri) {
        uri.setSsl(configuration.isUseSsl());
        uri.setVerifyPeer(configuration.getVerifyMode());
        uri.setStartTls(configuration.isStartTls());
        uri.setTimeout(configuration.getCommandTimeout());
    }
}
