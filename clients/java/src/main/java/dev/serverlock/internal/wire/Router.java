package dev.serverlock.internal.wire;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/** Sends commands to the server that has the key, and follows MOVED and ASK. Throws ReplyError or ConnectionLost. */
public final class Router {
    private static final int MOST_HOPS = 5;
    private static final int MOST_PIPELINES = 1000;
    private static final byte[][] ASKING = {Words.bytes("ASKING")};

    private final Server server;
    /** Null if there is only one server. */
    private final Cluster cluster;

    private final ConcurrentHashMap<Node, Pipeline> pipelines = new ConcurrentHashMap<>();

    public Router(Server server) {
        this.server = server;
        cluster = server instanceof Cluster several ? several : null;
    }

    public boolean isCluster() {
        return cluster != null;
    }

    public Object call(byte[] key, byte[][] words, long timeout) {
        Call call = new Call(words);
        send(key, call, timeout);
        return Errors.result(call);
    }

    /** Sends a command and fills in its result. */
    public void send(byte[] key, Call call, long timeout) {
        Node node = node(key);
        boolean isAsking = false;
        for (int hop = 1; ; hop++) {
            call.error = null;
            pipeline(node).exchange(isAsking ? List.of(new Call(ASKING), call) : List.of(call), timeout);
            if (cluster == null || call.error == null || hop == MOST_HOPS) {
                return;
            }
            RuntimeException error = Errors.read(call.error);
            String code = error instanceof ReplyError reply ? reply.code() : "";
            if (!code.equals("MOVED") && !code.equals("ASK")) {
                return;
            }
            isAsking = code.equals("ASK");
            node = redirected(key, error.getMessage(), isAsking, node);
            if (node == null) {
                return; // the caller tries again
            }
        }
    }

    private Node redirected(byte[] key, String text, boolean isAsking, Node from) {
        if (!isAsking) {
            cluster.refresh();
            Node node = node(key);
            if (!node.equals(from)) {
                return node;
            }
        }
        String[] words = text.split(" "); // MOVED slot address
        try {
            return words.length == 3 ? cluster.nodeAt(words[2]) : null;
        } catch (RuntimeException notThere) {
            return null;
        }
    }

    /** Sends commands for one server over one connection. */
    public void exchange(Node node, List<Call> calls, long timeout) {
        pipeline(node).exchange(calls, timeout);
    }

    public Node node(byte[] key) {
        try {
            return server.node(key);
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }

    public Collection<Pipeline> pipelines() {
        return pipelines.values();
    }

    private Pipeline pipeline(Node node) {
        return pipelines.computeIfAbsent(node, Pipeline::new);
    }

    /** Like Pipeline.narrow, for a single server. A cluster is never narrowed. */
    public boolean narrow(Runnable onQueued) {
        return cluster == null && pipeline(node(new byte[0])).narrow(onQueued);
    }

    public void widen() {
        pipelines.values().forEach(Pipeline::widen);
    }

    /** Asks again which server has which keys, and drops the pipelines of removed servers. */
    public void refresh() {
        if (cluster != null) {
            if (pipelines.size() > MOST_PIPELINES) {
                pipelines.clear();
            }
            try {
                cluster.refresh();
            } catch (RuntimeException unreachable) {
                // The next command reports it.
            }
        }
    }

    public Connection dial(byte[] key, long timeout) {
        try {
            return node(key).dial(Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }

    public WatchedConnection watch(Node node, long timeout) {
        try {
            return node.watch(Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }

    public Connection subscribe(byte[] key, String channel, Consumer<String> onMessage, Duration timeout) {
        try {
            return node(key).subscribe(channel, onMessage, timeout);
        } catch (RuntimeException error) {
            throw Errors.read(error);
        }
    }
}
