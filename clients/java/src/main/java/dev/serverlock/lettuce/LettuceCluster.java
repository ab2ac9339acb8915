package dev.serverlock.lettuce;

import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.ServerException;
import dev.serverlock.spi.Slots;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The servers of a cluster, from Lettuce's partitions. */
final class LettuceCluster implements Cluster {
    private final RedisClusterClient client;
    private final RedisClient dialer;
    private final StatefulRedisClusterConnection<?, ?> connection;
    private final Map<String, LettuceNode> nodes = new ConcurrentHashMap<>();

    LettuceCluster(RedisClusterClient client, RedisClient dialer, StatefulRedisClusterConnection<?, ?> connection) {
        this.client = client;
        this.dialer = dialer;
        this.connection = connection;
    }

    @Override
    public Node node(byte[] key) {
        RedisClusterNode master = connection.getPartitions().getMasterBySlot(Slots.of(key));
        if (master == null) {
            throw new ServerException("no server of the cluster serves the slot of the key", null);
        }
        return node(master.getUri());
    }

    @Override
    public Node nodeAt(String address) {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon);
        int port = Integer.parseInt(address.substring(colon + 1));
        RedisClusterNode known = connection.getPartitions().getPartition(host, port);
        if (known == null) {
            refresh();
            known = connection.getPartitions().getPartition(host, port);
        }
        if (known == null) {
            throw new ServerException("Lettuce knows no server at " + address, null);
        }
        return node(known.getUri());
    }

    private Node node(RedisURI uri) {
        StatefulRedisConnection<?, ?> shared;
        try {
            shared = connection.getConnection(uri.getHost(), uri.getPort());
        } catch (RuntimeException error) {
            throw Sent.read(error);
        }
        return nodes.compute(
                uri.getHost() + ":" + uri.getPort(),
                (address, known) ->
                        known != null && known.connection() == shared ? known : new LettuceNode(shared, dialer, uri));
    }

    @Override
    public void refresh() {
        try {
            client.refreshPartitions();
        } catch (RuntimeException unreachable) {
            // The next command reports it.
        }
    }

    @Override
    public boolean isAsync() {
        return true;
    }
}
