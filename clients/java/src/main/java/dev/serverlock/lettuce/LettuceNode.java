package dev.serverlock.lettuce;

import dev.serverlock.spi.AsyncNode;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.ServerException;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.RedisCommand;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * One server, behind the application's shared connection. A command is written only once: when the connection is lost,
 * it fails before Lettuce can send it again.
 *
 * <p>While a reply is overdue on that connection, the network may be dropping everything, and Lettuce waits until TCP
 * gives up, which can take 15 minutes. Meanwhile other commands use a {@link Spare}.
 */
final class LettuceNode implements AsyncNode, RedisConnectionStateListener {
    private final StatefulRedisConnection<?, ?> connection;
    private final RedisClient dialer;
    private final RedisURI uri;
    private final Set<Sent> inFlight = ConcurrentHashMap.newKeySet();
    /** Commands whose reply is late. */
    private final Set<Sent> overdue = ConcurrentHashMap.newKeySet();

    private final Spare spare;

    LettuceNode(StatefulRedisConnection<?, ?> connection, RedisClient dialer, RedisURI uri) {
        this.connection = connection;
        this.dialer = dialer;
        this.uri = uri;
        spare = new Spare(this::open);
        connection.addListener(this);
    }

    StatefulRedisConnection<?, ?> connection() {
        return connection;
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> gone) {
        for (Sent sent : inFlight) {
            if (sent.wasWritten()) {
                sent.completeExceptionally(new ServerException("the connection was lost", null));
            }
        }
    }

    @Override
    public boolean isShared() {
        return true;
    }

    @Override
    public void exchange(List<Call> calls, Duration timeout) {
        if (!overdue.isEmpty()) {
            spare.exchange(calls, timeout);
            return;
        }
        long end = System.nanoTime() + timeout.toNanos();
        List<Sent> all = dispatch(calls);
        boolean wasInterrupted = false;
        for (int at = 0; at < calls.size(); at++) {
            wasInterrupted |= await(calls.get(at), all.get(at), end);
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
        if (!overdue.isEmpty()) {
            return spare.send(calls, timeout);
        }
        List<Sent> all = dispatch(calls);
        return CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0]))
                .exceptionally(error -> null)
                .completeOnTimeout(null, timeout.toNanos(), TimeUnit.NANOSECONDS)
                .thenRun(() -> {
                    for (int at = 0; at < calls.size(); at++) {
                        read(calls.get(at), all.get(at));
                    }
                });
    }

    /** Fills in the result, without waiting for it. */
    private void read(Call call, Sent sent) {
        if (!sent.isDone()) {
            late(call, sent, null);
            return;
        }
        sent.whenComplete((reply, error) -> {
            if (error == null) {
                call.value = reply;
                call.wasResent = sent.wasRewritten();
            } else {
                call.error = Sent.read(error);
            }
        });
    }

    private List<Sent> dispatch(List<Call> calls) {
        List<Sent> all = new ArrayList<>(calls.size());
        for (Call call : calls) {
            Sent sent = new Sent(call.words);
            inFlight.add(sent);
            sent.whenComplete((reply, error) -> inFlight.remove(sent));
            all.add(sent);
            try {
                dispatch(connection, sent);
            } catch (RuntimeException error) {
                sent.completeExceptionally(error);
            }
        }
        return all;
    }

    @SuppressWarnings("unchecked") // the command has its own codec
    private static <K, V> void dispatch(StatefulRedisConnection<K, V> connection, Sent sent) {
        connection.dispatch((RedisCommand<K, V, Object>) (RedisCommand<?, ?, ?>) sent);
    }

    /** Fills in the result; returns whether the thread was interrupted while waiting. */
    private boolean await(Call call, Sent sent, long end) {
        boolean wasInterrupted = false;
        while (true) {
            try {
                call.value = sent.get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                call.wasResent = sent.wasRewritten();
                return wasInterrupted;
            } catch (InterruptedException interrupt) {
                wasInterrupted = true;
            } catch (ExecutionException error) {
                call.error = Sent.read(error.getCause());
                return wasInterrupted;
            } catch (java.util.concurrent.CancellationException error) {
                call.error = new ServerException("Lettuce has cancelled the command", error);
                return wasInterrupted;
            } catch (TimeoutException late) {
                late(call, sent, late);
                return wasInterrupted;
            }
        }
    }

    /** Notes that the reply has not come in time. cause: may be null. */
    private void late(Call call, Sent sent, TimeoutException cause) {
        call.error = new ServerException("no reply in time", cause);
        if (!sent.wasWritten()) {
            sent.cancel(); // Lettuce does not write a cancelled command
            return;
        }
        overdue.add(sent);
        sent.whenComplete((reply, error) -> settled(sent));
        call.late = sent.handle((reply, error) -> {
                    if (error != null) {
                        throw Sent.read(error);
                    }
                    return reply;
                })
                .toCompletableFuture();
    }

    private void settled(Sent sent) {
        overdue.remove(sent);
        if (overdue.isEmpty()) {
            spare.end();
        }
    }

    @Override
    public LettuceConnection dial(Duration timeout) {
        return connect(timeout);
    }

    @Override
    public LettuceConnection watch(Duration timeout) {
        return connect(timeout);
    }

    private LettuceConnection connect(Duration timeout) {
        return new LettuceConnection(within(timeout, dialer.connectAsync(ByteArrayCodec.INSTANCE, uri)));
    }

    private CompletableFuture<LettuceConnection> open() {
        return dialer.connectAsync(ByteArrayCodec.INSTANCE, uri)
                .thenApply(LettuceConnection::new)
                .toCompletableFuture();
    }

    @Override
    public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
        StatefulRedisPubSubConnection<byte[], byte[]> opened =
                within(timeout, dialer.connectPubSubAsync(ByteArrayCodec.INSTANCE, uri));
        opened.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(byte[] source, byte[] message) {
                onMessage.accept(new String(message, StandardCharsets.UTF_8));
            }
        });
        Connection connection = new LettuceConnection(opened);
        boolean isConfirmed = false;
        try {
            within(timeout, opened.async().subscribe(channel.getBytes(StandardCharsets.UTF_8)));
            isConfirmed = true;
            return connection;
        } finally {
            if (!isConfirmed) {
                connection.close();
            }
        }
    }

    static <T> T within(Duration timeout, CompletionStage<T> stage) {
        CompletableFuture<T> future = stage.toCompletableFuture();
        try {
            return future.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException error) {
            throw Sent.read(error.getCause());
        } catch (TimeoutException late) {
            closeWhenOpened(future);
            throw new ServerException("no connection within " + timeout, late);
        } catch (InterruptedException interrupt) {
            closeWhenOpened(future);
            Thread.currentThread().interrupt();
            throw new ServerException("interrupted", interrupt);
        }
    }

    private static <T> void closeWhenOpened(CompletableFuture<T> future) {
        future.thenAccept(opened -> {
            if (opened instanceof StatefulRedisConnection<?, ?> connection) {
                connection.closeAsync();
            }
        });
    }
}
