package dev.serverlock.jedis;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.ServerException;
import dev.serverlock.spi.Slots;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import redis.clients.jedis.ConnectionPool;

/** The pools of a cluster, one for each server, and their slots, which Jedis does not expose. */
final class JedisCluster implements Cluster {
    private static final byte[][] CLUSTER_SLOTS = {bytes("CLUSTER"), bytes("SLOTS")};
    private static final Duration PATIENCE = Duration.ofSeconds(1);

    private final Supplier<Map<String, ConnectionPool>> pools;
    private final Runnable renew;
    private volatile String[] owners;

    JedisCluster(Supplier<Map<String, ConnectionPool>> pools, Runnable renew) {
        this.pools = pools;
        this.renew = renew;
    }

    @Override
    public Node node(byte[] key) {
        if (owners == null) {
            refresh();
        }
        String[] known = owners;
        String address = known == null ? null : known[Slots.of(key)];
        if (address == null) {
            refresh();
            known = owners;
            address = known == null ? null : known[Slots.of(key)];
        }
        if (address == null) {
            throw new ServerException("no server of the cluster serves the slot of the key, or none answers", null);
        }
        return nodeAt(address);
    }

    @Override
    public Node nodeAt(String address) {
        ConnectionPool pool = pools.get().get(address);
        if (pool == null) {
            renew();
            pool = pools.get().get(address);
        }
        if (pool == null) {
            throw new ServerException("Jedis knows no server at " + address, null);
        }
        return new JedisNode(pool);
    }

    @Override
    public void refresh() {
        renew();
        for (ConnectionPool pool : pools.get().values()) {
            Call call = new Call(CLUSTER_SLOTS);
            new JedisNode(pool).exchange(List.of(call), PATIENCE);
            if (call.error == null && call.value instanceof List<?> ranges) {
                owners = read(ranges);
                return;
            }
        }
    }

    private void renew() {
        try {
            renew.run();
        } catch (RuntimeException unreachable) {
            // The next command reports it.
        }
    }

    /** Each range consists of its first slot, its last slot, and the master: host, port. */
    private static String[] read(List<?> ranges) {
        String[] read = new String[Slots.COUNT];
        for (Object range : ranges) {
            if (range instanceof List<?> parts
                    && parts.size() > 2
                    && parts.get(2) instanceof List<?> master
                    && parts.get(0) instanceof Long from
                    && parts.get(1) instanceof Long to) {
                String address = text(master.get(0)) + ":" + master.get(1);
                for (int slot = from.intValue(); slot <= to.intValue(); slot++) {
                    read[slot] = address;
                }
            }
        }
        return read;
    }

    private static String text(Object host) {
        return host instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(host);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
