package dev.serverlock.lettuce;

import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.ServerException;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import java.util.function.Supplier;

/**
 * A Lettuce client, for {@link dev.serverlock.Locks#over}. Commands use the application's shared connection.
 * Connections for waiting and sessions are opened with the client's resources and options, but do not reconnect.
 */
@SuppressWarnings("exports") // see module-info.java
public final class LettuceServer implements Server {
    private final Supplier<? extends StatefulRedisConnection<?, ?>> shared;
    private final RedisClient dialer;
    private final RedisURI uri;
    private volatile LettuceNode node;

    private LettuceServer(RedisClient dialer, RedisURI uri, Supplier<? extends StatefulRedisConnection<?, ?>> shared) {
        this.shared = shared;
        this.dialer = dialer;
        this.uri = uri;
    }

    /**
     * A connection to one server, or to the master named by Sentinels.
     *
     * @param client the client
     * @param uri where the client connects to
     * @param connection the connection that the application shares, with any codec
     * @return its server
     */
    public static Server of(RedisClient client, RedisURI uri, StatefulRedisConnection<?, ?> connection) {
        return of(client, uri, () -> connection);
    }

    /**
     * A connection that is opened on demand.
     *
     * @param client the client
     * @param uri where the client connects to
     * @param connection returns the connection that the application shares, the same each time
     * @return its server
     */
    public static Server of(
            RedisClient client, RedisURI uri, Supplier<? extends StatefulRedisConnection<?, ?>> connection) {
        return new LettuceServer(dialer(client), uri, connection);
    }

    /**
     * A connection to a cluster.
     *
     * @param client the client
     * @param connection the connection that the application shares, with any codec
     * @return its servers
     */
    public static Server of(RedisClusterClient client, StatefulRedisClusterConnection<?, ?> connection) {
        return new LettuceCluster(client, dialer(client), connection);
    }

    /** A client that uses the given client's threads, so it costs nothing and need not be shut down. */
    private static RedisClient dialer(AbstractRedisClient client) {
        RedisClient dialer = RedisClient.create(client.getResources());
        ClientOptions options = client.getOptions();
        dialer.setOptions(ClientOptions.builder()
                .autoReconnect(false)
                .socketOptions(options.getSocketOptions())
                .sslOptions(options.getSslOptions())
                .build());
        return dialer;
    }

    @Override
    public Node node(byte[] key) {
        StatefulRedisConnection<?, ?> connection;
        try {
            connection = shared.get();
        } catch (RuntimeException error) {
            throw Sent.read(error);
        }
        LettuceNode known = node;
        if (known == null || known.connection() != connection) {
            synchronized (this) {
                if (node == null || node.connection() != connection) {
                    node = new LettuceNode(connection, dialer, uri);
                }
                known = node;
            }
        }
        if (known == null) {
            throw new ServerException("there is no connection", null);
        }
        return known;
    }

    @Override
    public boolean isAsync() {
        return true;
    }
}
