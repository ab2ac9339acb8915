package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * How attempts wait by NOTIFY: one connection that is subscribed to the channel of this manager, and the attempts that
 * its messages go to. Messages are hints: an attempt asks the server again after a message, and when the connection is
 * lost or open again.
 */
final class Subscription {
    private static final long PING_EVERY = 3 * Clock.SECOND;
    private static final long SHORTEST_PAUSE = 50 * Clock.MILLISECOND;
    private static final byte[][] PING = {Words.bytes("PING")};

    final String channel = "serverlock:" + String.format("%016x", new SecureRandom().nextLong());

    private final Engine engine;
    private final Map<String, News> byId = new HashMap<>();
    private final CountDownLatch closed = new CountDownLatch(1);
    private Connection connection;
    private boolean isRunning;
    private boolean isUp;
    private boolean isRefused;

    Subscription(Engine engine) {
        this.engine = engine;
    }

    /** Adds an attempt. The first one opens the connection. */
    synchronized News register(String id, byte[] key) {
        News made = new News();
        byId.put(id, made);
        if (!isRunning && !isRefused) {
            isRunning = true;
            engine.thread("serverlock-wait", () -> listen(key)).start();
        }
        return made;
    }

    synchronized int waiting() {
        return byId.size();
    }

    synchronized void unregister(String id) {
        byId.remove(id);
    }

    synchronized boolean isUp() {
        return isUp;
    }

    synchronized boolean isRefused() {
        return isRefused;
    }

    /** Waits until the connection is subscribed, or the server has refused. */
    void awaitReady(News mine, long timeout) throws InterruptedException {
        long end = Clock.after(engine.clock.now(), timeout);
        while (!isUp() && !isRefused() && !engine.isClosed()) {
            long left = end - engine.clock.now();
            if (left <= 0) {
                return;
            }
            mine.await(left);
        }
    }

    void close() {
        closed.countDown();
        Connection open;
        synchronized (this) {
            open = connection;
            byId.values().forEach(News::wake);
        }
        if (open != null) {
            open.close();
        }
    }

    private void listen(byte[] key) {
        long span = SHORTEST_PAUSE;
        try {
            while (!engine.isClosed()) {
                try {
                    Connection subscribed = subscribed(key);
                    span = SHORTEST_PAUSE;
                    watch(subscribed);
                    if (!engine.isClosed()) {
                        engine.warn("the connection for waiting was lost, and is opened again", null);
                    }
                } catch (ReplyError reply) {
                    if (!Errors.mayPass(reply)) {
                        refused();
                        return;
                    }
                } catch (ConnectionLost noServer) {
                    engine.router.refresh();
                }
                down();
                if (closed.await(span, TimeUnit.NANOSECONDS)) {
                    return;
                }
                span = Math.min(Clock.SECOND, 2 * span);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt(); // no code interrupts this thread
        }
    }

    private Connection subscribed(byte[] key) {
        Connection made = engine.router.subscribe(key, channel, this::pass, Clock.duration(engine.timeout));
        synchronized (this) {
            connection = made;
            isUp = true;
        }
        if (engine.isClosed()) { // close came before the connection
            made.close();
        }
        sendAgain();
        return made;
    }

    /** Returns when the connection has ended. PING detects a network that swallows everything. */
    private void watch(Connection open) throws InterruptedException {
        CountDownLatch ended = new CountDownLatch(1);
        open.onEnd(ended::countDown);
        while (!ended.await(PING_EVERY, TimeUnit.NANOSECONDS)) {
            try {
                Connections.call(open, PING, engine.timeout);
            } catch (ReplyError | ConnectionLost failed) {
                open.close();
                return;
            }
        }
    }

    /** Has all attempts sent again, spread over a second. */
    synchronized void sendAgain() {
        for (News news : byId.values()) {
            long later = byId.size() > 1 ? ThreadLocalRandom.current().nextLong(Clock.SECOND) : 0;
            news.askAgainAt(engine.clock.now() + later);
        }
    }

    private synchronized void down() {
        isUp = false;
        connection = null;
        byId.values().forEach(News::wake);
    }

    private synchronized void refused() {
        isRefused = true;
        isRunning = false;
        byId.values().forEach(News::wake);
    }

    /** Reads "granted id key". */
    private void pass(String message) {
        String[] words = message.split(" ", 3);
        News news;
        synchronized (this) {
            news = words.length > 1 ? byId.get(words[1]) : null;
        }
        if (news != null) {
            news.add(words[0]);
        }
    }
}
