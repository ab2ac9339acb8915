package dev.serverlock;

import dev.serverlock.spi.Line;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * How attempts wait by NOTIFY: one line that is subscribed to the channel of this manager, and who hears what. Messages
 * are
 * hints: an attempt asks the server again when it hears something, and when the line is lost or comes back.
 */
final class Subscription {
    private static final long PING_EVERY = 3 * Clock.SECOND;
    private static final long SHORTEST_PAUSE = 50 * Clock.MILLISECOND;
    private static final byte[][] PING = {Words.bytes("PING")};

    final String channel = "serverlock:" + String.format("%016x", new SecureRandom().nextLong());

    private final Engine engine;
    private final Map<String, News> byId = new HashMap<>();
    private final CountDownLatch closed = new CountDownLatch(1);
    private Line line;
    private boolean isRunning;
    private boolean isUp;
    private boolean isRefused;

    Subscription(Engine engine) {
        this.engine = engine;
    }

    /** Opens the line when it is the first. */
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

    /** Waits until the line is subscribed, or it is clear that it cannot be. */
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
        Line open;
        synchronized (this) {
            open = line;
            byId.values().forEach(News::stir);
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
                    Line subscribed = subscribed(key);
                    span = SHORTEST_PAUSE;
                    watch(subscribed);
                    if (!engine.isClosed()) {
                        engine.warn("the connection for waiting was lost, and is opened again", null);
                    }
                } catch (Said reply) {
                    if (!Judge.mayPass(reply)) {
                        refused();
                        return;
                    }
                } catch (Broken noServer) {
                    engine.router.refresh();
                }
                down();
                if (closed.await(span, TimeUnit.NANOSECONDS)) {
                    return;
                }
                span = Math.min(Clock.SECOND, 2 * span);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt(); // nobody does that to this thread
        }
    }

    private Line subscribed(byte[] key) {
        Line made = engine.router.subscribe(key, channel, this::pass, Clock.duration(engine.timeout));
        synchronized (this) {
            line = made;
            isUp = true;
        }
        if (engine.isClosed()) { // close came before the line
            made.close();
        }
        sendAgain();
        return made;
    }

    /** Returns when the line has ended. A network that swallows everything is noticed by the silence. */
    private void watch(Line open) throws InterruptedException {
        CountDownLatch ended = new CountDownLatch(1);
        open.onEnd(ended::countDown);
        while (!ended.await(PING_EVERY, TimeUnit.NANOSECONDS)) {
            try {
                Lines.call(open, PING, engine.timeout);
            } catch (Said | Broken failed) {
                open.close();
                return;
            }
        }
    }

    /** Has all attempts sent again, within a second: not all at once. */
    synchronized void sendAgain() {
        for (News news : byId.values()) {
            long later = byId.size() > 1 ? ThreadLocalRandom.current().nextLong(Clock.SECOND) : 0;
            news.askAgainAt(engine.clock.now() + later);
        }
    }

    private synchronized void down() {
        isUp = false;
        line = null;
        byId.values().forEach(News::stir);
    }

    private synchronized void refused() {
        isRefused = true;
        isRunning = false;
        byId.values().forEach(News::stir);
    }

    /** Reads "granted id key". */
    private void pass(String message) {
        String[] words = message.split(" ", 3);
        News news;
        synchronized (this) {
            news = words.length > 1 ? byId.get(words[1]) : null;
        }
        if (news != null) {
            news.hear(words[0]);
        }
    }
}
