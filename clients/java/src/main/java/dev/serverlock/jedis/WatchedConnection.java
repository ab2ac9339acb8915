package dev.serverlock.jedis;

import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;

/** A connection read by a daemon thread, so that its end is noticed at once. */
final class WatchedConnection implements dev.serverlock.spi.WatchedConnection {
    private final Connection connection;
    private final Consumer<String> onMessage;
    private final Deque<CompletableFuture<Object>> pending = new ArrayDeque<>();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    /** Once set, nothing is sent: Jedis would reconnect on its own. */
    private boolean isClosed;

    WatchedConnection(Connection connection, Consumer<String> onMessage) {
        this.connection = connection;
        this.onMessage = onMessage;
        connection.setSoTimeout(0);
        Thread reader = new Thread(this::listen, "serverlock-connection");
        reader.setDaemon(true);
        reader.start();
    }

    @Override
    public Object call(byte[][] words, Duration timeout) throws InterruptedException {
        boolean isAnswered = false;
        try {
            Object reply = send(words).get(timeout.toNanos(), TimeUnit.NANOSECONDS);
            isAnswered = true;
            return reply;
        } catch (ExecutionException error) {
            isAnswered = error.getCause() instanceof ReplyException;
            throw (RuntimeException) error.getCause();
        } catch (TimeoutException late) {
            throw new ServerException("no reply within " + timeout, late);
        } finally {
            if (!isAnswered) {
                close();
            }
        }
    }

    @Override
    public synchronized CompletableFuture<Object> send(byte[][] words) {
        CompletableFuture<Object> reply = new CompletableFuture<>();
        if (isClosed) {
            reply.completeExceptionally(over(null));
            return reply;
        }
        pending.add(reply);
        try {
            connection.sendCommand(JedisNode.arguments(words));
            connection.getMany(0); // flushes
        } catch (RuntimeException error) {
            end(error);
        }
        return reply;
    }

    private void listen() {
        while (true) {
            Object reply;
            try {
                reply = JedisNode.plain(connection.getUnflushedObject());
            } catch (JedisDataException error) {
                complete(null, new ReplyException(error.getMessage()));
                continue;
            } catch (RuntimeException error) {
                end(error);
                return;
            }
            if (!isMessage(reply)) {
                complete(reply, null);
            }
        }
    }

    private boolean isMessage(Object reply) {
        if (!(reply instanceof List<?> words)
                || words.size() != 3
                || !text(words.get(0)).equals("message")) {
            return false;
        }
        onMessage.accept(text(words.get(2)));
        return true;
    }

    private static String text(Object word) {
        return word instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(word);
    }

    private void complete(Object reply, RuntimeException error) {
        CompletableFuture<Object> next;
        synchronized (this) {
            next = pending.poll();
        }
        if (next == null) {
            end(new ServerException("an unexpected reply", error));
        } else if (error == null) {
            next.complete(reply);
        } else {
            next.completeExceptionally(error);
        }
    }

    private static ServerException over(Throwable cause) {
        return new ServerException("the connection has ended", cause);
    }

    private void end(Throwable cause) {
        List<CompletableFuture<Object>> lost;
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
            try {
                connection.disconnect();
            } catch (RuntimeException wasBroken) {
                // It is closed anyway.
            }
            lost = new ArrayList<>(pending);
            pending.clear();
        }
        lost.forEach(reply -> reply.completeExceptionally(over(cause)));
        ended.complete(null);
    }

    @Override
    public synchronized boolean isOpen() {
        return !isClosed;
    }

    @Override
    public void onEnd(Runnable call) {
        ended.thenRun(call);
    }

    @Override
    public void close() {
        end(null);
    }
}
