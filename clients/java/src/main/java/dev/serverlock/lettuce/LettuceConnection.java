package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import dev.serverlock.spi.WatchedConnection;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A dedicated Lettuce connection, which does not reconnect. */
final class LettuceConnection implements WatchedConnection {
    private static final Duration CLOSING = Duration.ofSeconds(1);

    private final StatefulRedisConnection<byte[], byte[]> connection;
    private final Set<CompletableFuture<Object>> pending = ConcurrentHashMap.newKeySet();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    LettuceConnection(StatefulRedisConnection<byte[], byte[]> connection) {
        this.connection = connection;
        connection.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> gone) {
                end();
            }
        });
        if (!connection.isOpen()) {
            end();
        }
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

    /**
     * Fills in the results of the commands, in time; interrupts are deferred until then. If a reply is missing, the
     * connection is closed.
     */
    void exchange(List<Call> calls, Duration timeout) {
        long end = System.nanoTime() + timeout.toNanos();
        List<CompletableFuture<Object>> replies =
                calls.stream().map(call -> send(call.words)).toList();
        boolean wasInterrupted = false;
        for (int at = 0; at < calls.size(); at++) {
            Call call = calls.get(at);
            while (call.value == null && call.error == null) {
                try {
                    call.value = replies.get(at).get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                    break;
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true;
                } catch (ExecutionException error) {
                    call.error = (RuntimeException) error.getCause();
                } catch (TimeoutException late) {
                    call.error = new ServerException("no reply within " + timeout, late);
                    close();
                }
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Like exchange, but does not block. */
    CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
        List<CompletableFuture<Object>> replies =
                calls.stream().map(call -> send(call.words)).toList();
        return CompletableFuture.allOf(replies.toArray(new CompletableFuture<?>[0]))
                .exceptionally(error -> null)
                .completeOnTimeout(null, timeout.toNanos(), TimeUnit.NANOSECONDS)
                .thenRun(() -> {
                    for (int at = 0; at < calls.size(); at++) {
                        read(calls.get(at), replies.get(at), timeout);
                    }
                });
    }

    private void read(Call call, CompletableFuture<Object> reply, Duration timeout) {
        if (!reply.isDone()) {
            call.error = new ServerException("no reply within " + timeout, null);
            abandon();
            return;
        }
        reply.whenComplete((value, error) -> {
            call.value = value;
            call.error = error == null ? null : Sent.read(error);
        });
    }

    @Override
    public CompletableFuture<Object> send(byte[][] words) {
        CompletableFuture<Object> reply = new CompletableFuture<>();
        pending.add(reply);
        if (ended.isDone()) {
            lose(reply);
            return reply;
        }
        Sent sent = new Sent(words);
        sent.whenComplete((value, error) -> {
            pending.remove(reply);
            RuntimeException read = error == null ? null : Sent.read(error);
            if (read == null) {
                reply.complete(value);
            } else {
                reply.completeExceptionally(read);
                if (!(read instanceof ReplyException)) {
                    abandon();
                }
            }
        });
        try {
            connection.dispatch(sent);
        } catch (RuntimeException closed) {
            abandon();
        }
        return reply;
    }

    private void lose(CompletableFuture<Object> reply) {
        pending.remove(reply);
        reply.completeExceptionally(new ServerException("the connection has ended", null));
    }

    private void end() {
        ended.complete(null);
        pending.forEach(this::lose);
    }

    @Override
    public boolean isOpen() {
        return !ended.isDone();
    }

    @Override
    public void onEnd(Runnable call) {
        ended.thenRun(call);
    }

    @Override
    public void close() {
        try {
            abandon().get(CLOSING.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException goesOn) {
            // Lettuce closes it in the background.
        }
    }

    /** Closes it once nothing is pending. Does not block. */
    void closeWhenIdle() {
        CompletableFuture.allOf(pending.toArray(new CompletableFuture<?>[0])).whenComplete((none, error) -> abandon());
    }

    /** Begins to close it, without blocking a Lettuce thread. */
    private CompletableFuture<Void> abandon() {
        end();
        return connection.closeAsync();
    }
}
