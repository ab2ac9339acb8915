package dev.serverlock.jedis;

import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.io.IOException;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * A connection read by its caller's thread. An interrupt closes it, as it closes JDK channels. Only the next command
 * notices that the connection has ended.
 */
final class JedisConnection implements dev.serverlock.spi.Connection {
    private final Connection connection;
    private final Door door = new Door();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private int soTimeout;

    JedisConnection(Connection connection) {
        this.connection = connection;
        soTimeout = connection.getSoTimeout();
    }

    /** An interrupt closes the connection while a caller is between {@code enter} and {@code leave}. */
    private final class Door extends AbstractInterruptibleChannel {
        void enter() {
            begin();
        }

        void leave() {
            try {
                end(true);
            } catch (IOException interrupted) {
                // It is closed, and the thread is interrupted.
            }
        }

        @Override
        protected void implCloseChannel() {
            try {
                connection.disconnect();
            } catch (RuntimeException wasBroken) {
                // It is closed anyway.
            }
            ended.complete(null);
        }
    }

    @Override
    public Object call(byte[][] words, Duration timeout) throws InterruptedException {
        boolean isAnswered = false;
        door.enter();
        try {
            Object reply = exchange(words, (int) Math.min(Integer.MAX_VALUE, Math.max(1, timeout.toMillis())));
            isAnswered = true;
            return reply;
        } catch (JedisDataException error) {
            isAnswered = true;
            throw new ReplyException(error.getMessage());
        } catch (RuntimeException error) {
            if (Thread.interrupted()) {
                throw new InterruptedException("interrupted while waiting for a reply");
            }
            throw JedisNode.read(error);
        } finally {
            door.leave();
            if (!isAnswered) {
                close();
            }
        }
    }

    private Object exchange(byte[][] words, int patience) {
        if (isOpen() && patience != soTimeout) {
            connection.setSoTimeout(patience);
            soTimeout = patience;
        }
        if (isOpen()) {
            connection.sendCommand(JedisNode.arguments(words));
        }
        // If it has just been closed, Jedis reconnects on its own. Nothing has been sent yet: getOne flushes.
        if (!isOpen()) {
            connection.disconnect();
            throw new ServerException("the connection has ended", null);
        }
        return JedisNode.plain(connection.getOne());
    }

    @Override
    public boolean isOpen() {
        return door.isOpen();
    }

    @Override
    public void onEnd(Runnable call) {
        ended.thenRun(call);
    }

    @Override
    public void close() {
        try {
            door.close();
        } catch (IOException impossible) {
            throw new AssertionError(impossible); // closing the door throws no IOException
        }
    }
}
