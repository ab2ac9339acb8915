package dev.serverlock;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Line;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/** Leads calls to the server that has the key, and follows MOVED and ASK. What it throws is Said or Broken. */
final class Router {
    private static final int MOST_HOPS = 5;
    private static final int MOST_LANES = 1000;
    private static final byte[][] ASKING = {Words.bytes("ASKING")};

    private final Server server;
    /** Null if there is one server. */
    private final Cluster cluster;

    private final ConcurrentHashMap<Node, Lane> lanes = new ConcurrentHashMap<>();

    Router(Server server) {
        this.server = server;
        cluster = server instanceof Cluster several ? several : null;
    }

    boolean isCluster() {
        return cluster != null;
    }

    Object call(byte[] key, byte[][] words, long timeout) {
        Call call = new Call(words);
        send(key, call, timeout);
        return Judge.result(call);
    }

    /** The same, with what is known of the call besides its reply. */
    void send(byte[] key, Call call, long timeout) {
        Node node = node(key);
        boolean isAsking = false;
        for (int hop = 1; ; hop++) {
            call.error = null;
            lane(node).exchange(isAsking ? List.of(new Call(ASKING), call) : List.of(call), timeout);
            if (cluster == null || call.error == null || hop == MOST_HOPS) {
                return;
            }
            RuntimeException error = Judge.read(call.error);
            String code = error instanceof Said said ? said.code : "";
            if (!code.equals("MOVED") && !code.equals("ASK")) {
                return;
            }
            isAsking = code.equals("ASK");
            node = redirected(key, error.getMessage(), isAsking, node);
            if (node == null) {
                return; // to be tried again
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

    /** Sends calls that belong to one server over one connection. */
    void exchange(Node node, List<Call> calls, long timeout) {
        lane(node).exchange(calls, timeout);
    }

    Node node(byte[] key) {
        try {
            return server.node(key);
        } catch (RuntimeException error) {
            throw Judge.read(error);
        }
    }

    Collection<Lane> lanes() {
        return lanes.values();
    }

    private Lane lane(Node node) {
        return lanes.computeIfAbsent(node, Lane::new);
    }

    /** This and widen are about the one server; a cluster cannot be narrowed. */
    boolean narrow(Runnable crowded) {
        return cluster == null && lane(node(new byte[0])).narrow(crowded);
    }

    void widen() {
        lanes.values().forEach(Lane::widen);
    }

    /** Finds out anew which server has which keys. Servers that are gone leave no lanes behind. */
    void refresh() {
        if (cluster != null) {
            if (lanes.size() > MOST_LANES) {
                lanes.clear();
            }
            try {
                cluster.refresh();
            } catch (RuntimeException unreachable) {
                // The next call finds out.
            }
        }
    }

    Line dial(byte[] key, boolean isWatched, long timeout) {
        try {
            return node(key).dial(isWatched, Clock.duration(timeout));
        } catch (RuntimeException error) {
            throw Judge.read(error);
        }
    }

    Line subscribe(byte[] key, String channel, Consumer<String> heard, Duration timeout) {
        try {
            return node(key).subscribe(channel, heard, timeout);
        } catch (RuntimeException error) {
            throw Judge.read(error);
        }
    }
}
