package dev.serverlock.internal.connection;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Connection;
import java.security.SecureRandom;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Waiting with NOTIFY: one connection that is subscribed to this manager's channel, and the attempts that its messages
 * are for. A message is only a hint. The attempt asks the server again after a message, or when the connection is lost
 * or restored. Thread-safe.
 *
 * <p>Attempts only read, and take no lock that the reading thread needs: ten thousand of them would delay the messages.
 * The state is written before attempts are woken, and attempts read it after they have registered.
 */
public final class Subscription {
    private static final long PING_EVERY = 3 * Clock.SECOND;
    private static final long SHORTEST_PAUSE = 50 * Clock.MILLISECOND;
    private static final byte[][] PING = {Words.bytes("PING")};

    private final String channel = "serverlock:" + String.format("%016x", new SecureRandom().nextLong());

    private final Context context;
    private final Router router;
    private final Map<String, Updates> byId = new ConcurrentHashMap<>();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private Connection connection;
    private volatile boolean isRunning;
    private volatile boolean isUp;
    private volatile boolean isRefused;
    private volatile boolean isUsable = true;
    private volatile boolean hasWorked;

    public Subscription(Context context, Router router) {
        this.context = context;
        this.router = router;
    }

    /** The channel for the NOTIFY option of ACQUIRE. */
    public String channel() {
        return channel;
    }

    /** Whether attempts may use NOTIFY: true until the server refuses it. */
    public boolean isUsable() {
        return isUsable;
    }

    /** Records that the server or this user cannot use NOTIFY. */
    public void giveUp() {
        isUsable = false;
    }

    /** Whether the server has accepted a wait with NOTIFY before. */
    public boolean hasWorked() {
        return hasWorked;
    }

    public void worked() {
        hasWorked = true;
    }

    /** Adds an attempt. The first one opens the connection. */
    public Updates register(String id, byte[] key) {
        Updates updates = new Updates(context);
        byId.put(id, updates);
        if (!isRunning && !isRefused) {
            start(key);
        }
        return updates;
    }

    private synchronized void start(byte[] key) {
        if (!isRunning && !isRefused) {
            isRunning = true;
            context.thread("serverlock-wait", () -> listen(key)).start();
        }
    }

    public int waiting() {
        return byId.size();
    }

    public void unregister(String id) {
        byId.remove(id);
    }

    public boolean isUp() {
        return isUp;
    }

    public boolean isRefused() {
        return isRefused;
    }

    /** Waits until the connection is subscribed, or the server has refused it. */
    public void awaitReady(Updates mine, long timeout) throws InterruptedException {
        long end = Clock.after(context.now(), timeout);
        while (!isUp() && !isRefused() && !context.isClosed()) {
            long left = end - context.now();
            if (left <= 0) {
                return;
            }
            mine.await(left);
        }
    }

    public void close() {
        closed.complete(null);
        Connection open;
        synchronized (this) {
            open = connection;
        }
        byId.values().forEach(Updates::wake);
        if (open != null) {
            open.close();
        }
    }

    private void listen(byte[] key) {
        long span = SHORTEST_PAUSE;
        try {
            while (!context.isClosed()) {
                try {
                    Connection subscribed = subscribe(key);
                    span = SHORTEST_PAUSE;
                    watch(subscribed);
                    if (!context.isClosed()) {
                        context.warn("the connection for waiting was lost; opening a new one", null);
                    }
                } catch (ReplyError reply) {
                    if (!Errors.isTransient(reply)) {
                        refused();
                        return;
                    }
                } catch (ConnectionLost noServer) {
                    router.refresh();
                }
                down();
                if (context.await(closed, span)) {
                    return;
                }
                span = Math.min(Clock.SECOND, 2 * span);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt(); // no code interrupts this thread
        }
    }

    private Connection subscribe(byte[] key) {
        Connection subscribed = router.subscribe(key, channel, this::pass, Clock.duration(context.timeout()));
        synchronized (this) {
            connection = subscribed;
            isUp = true;
        }
        if (context.isClosed()) { // closed before the connection was open
            subscribed.close();
        }
        sendAgain();
        return subscribed;
    }

    /** Returns when the connection has ended. A PING detects a network that drops everything. */
    private void watch(Connection open) throws InterruptedException {
        CompletableFuture<Void> ended = new CompletableFuture<>();
        open.onEnd(() -> ended.complete(null));
        while (!context.await(ended, PING_EVERY)) {
            try {
                Connections.call(open, PING, context.timeout());
            } catch (ReplyError | ConnectionLost failed) {
                open.close();
                return;
            }
        }
    }

    /** Makes all attempts resend, spread over a second. */
    public void sendAgain() {
        boolean areSpread = byId.size() > 1;
        for (Updates updates : byId.values()) {
            long later = areSpread ? ThreadLocalRandom.current().nextLong(Clock.SECOND) : 0;
            updates.askAgainAt(context.now() + later);
        }
    }

    private void down() {
        isUp = false;
        synchronized (this) {
            connection = null;
        }
        byId.values().forEach(Updates::wake);
    }

    private void refused() {
        synchronized (this) {
            isRefused = true;
            isRunning = false;
        }
        byId.values().forEach(Updates::wake);
    }

    /** Reads "granted id key". */
    private void pass(String message) {
        String[] words = message.split(" ", 3);
        Updates updates = words.length > 1 ? byId.get(words[1]) : null;
        if (updates != null) {
            updates.add(words[0]);
        }
    }
}
