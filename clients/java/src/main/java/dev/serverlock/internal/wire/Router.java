package dev.serverlock.internal.wire;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.AsyncNode;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
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
    private final AtomicBoolean isRefreshing = new AtomicBoolean();

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
            String redirection = hop == MOST_HOPS ? "" : redirection(call);
            if (redirection.isEmpty()) {
                return;
            }
            isAsking = redirection.equals("ASK");
            node = redirected(key, Errors.read(call.error).getMessage(), isAsking, node);
            if (node == null) {
                return; // the caller tries again
            }
        }
    }

    /** MOVED, ASK, or empty. */
    private String redirection(Call call) {
        boolean mayBe = cluster != null && call.error != null;
        String code = mayBe && Errors.read(call.error) instanceof ReplyError reply ? reply.code() : "";
        return code.equals("MOVED") || code.equals("ASK") ? code : "";
    }

    /** Whether commands can be sent without blocking a thread. */
    public boolean isAsync() {
        return server.isAsync();
    }

    /** Like call, but blocks only threads of the executor, and only to follow a redirection. */
    public CompletableFuture<Object> callAsync(byte[] key, byte[][] words, long timeout, Executor blocking) {
        Call call = new Call(words);
        return sendAsync(key, call, timeout, blocking).thenApply(sent -> Errors.result(call));
    }

    /** Like send, but blocks only threads of the executor, and only to follow a redirection. */
    public CompletableFuture<Void> sendAsync(byte[] key, Call call, long timeout, Executor blocking) {
        try {
            return hop(key, call, timeout, node(key), false, 1, blocking);
        } catch (RuntimeException notKnown) {
            return CompletableFuture.failedFuture(notKnown);
        }
    }

    private CompletableFuture<Void> hop(
            byte[] key, Call call, long timeout, Node node, boolean isAsking, int hop, Executor blocking) {
        call.error = null;
        List<Call> calls = isAsking ? List.of(new Call(ASKING), call) : List.of(call);
        return ((AsyncNode) node).send(calls, Clock.duration(timeout)).thenCompose(sent -> {
            String redirection = hop == MOST_HOPS ? "" : redirection(call);
            if (redirection.isEmpty()) {
                return CompletableFuture.completedFuture(null);
            }
            boolean asks = redirection.equals("ASK");
            String text = Errors.read(call.error).getMessage();
            return CompletableFuture.supplyAsync(() -> redirected(key, text, asks, node), blocking)
                    .thenCompose(next -> next == null // the caller tries again
                            ? CompletableFuture.completedFuture(null)
                            : hop(key, call, timeout, next, asks, hop + 1, blocking));
        });
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

    /** Refreshes in a thread of the executor. Calls during a refresh add nothing to it. */
    public void refreshIn(Executor blocking) {
        if (cluster != null && !isRefreshing.getAndSet(true)) {
            blocking.execute(() -> {
                isRefreshing.set(false);
                refresh();
            });
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
