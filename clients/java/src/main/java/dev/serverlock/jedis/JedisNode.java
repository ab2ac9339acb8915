package dev.serverlock.jedis;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Consumer;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.Pool;

/** One server, behind one pool. */
record JedisNode(Pool<Connection> pool) implements Node {
    @Override
    public boolean isShared() {
        return false;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof JedisNode node && node.pool == pool;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(pool);
    }

    @Override
    public void exchange(List<Call> calls, Duration timeout) {
        long end = System.nanoTime() + timeout.toNanos();
        Connection connection;
        try {
            connection = pool.borrowObject(timeout);
        } catch (Exception error) {
            fail(calls, 0, read(error));
            return;
        }
        int soTimeout = connection.getSoTimeout();
        int replies = 0;
        boolean isWhole = false;
        try {
            for (Call call : calls) {
                connection.sendCommand(arguments(call.words));
            }
            for (Call call : calls) {
                // The application's shorter time-out still applies. Setting one costs a system call.
                int patience = patience(end);
                if (soTimeout == 0 || patience < soTimeout) {
                    connection.setSoTimeout(patience);
                }
                receive(connection, call);
                replies++;
            }
            if (connection.getSoTimeout() != soTimeout) {
                connection.setSoTimeout(soTimeout);
            }
            isWhole = true;
        } catch (RuntimeException error) {
            fail(calls, replies, read(error));
        } finally {
            giveBack(connection, isWhole);
        }
    }

    private static void receive(Connection connection, Call call) {
        try {
            call.value = plain(connection.getOne());
        } catch (JedisDataException reply) {
            call.error = new ReplyException(reply.getMessage());
        }
    }

    private void giveBack(Connection connection, boolean isWhole) {
        try {
            if (isWhole && !connection.isBroken()) {
                pool.returnResource(connection);
            } else {
                pool.returnBrokenResource(connection);
            }
        } catch (RuntimeException poolIsClosed) {
            // The commands have their replies.
        }
    }

    private static int patience(long end) {
        return (int) Math.max(1, (end - System.nanoTime()) / 1_000_000);
    }

    private static void fail(List<Call> calls, int from, RuntimeException error) {
        calls.subList(from, calls.size()).forEach(call -> call.error = error);
    }

    @Override
    public JedisConnection dial(Duration timeout) {
        return new JedisConnection(open());
    }

    @Override
    public WatchedConnection watch(Duration timeout) {
        return new WatchedConnection(open(), message -> {});
    }

    @Override
    public WatchedConnection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
        WatchedConnection subscribed = new WatchedConnection(open(), onMessage);
        boolean isConfirmed = false;
        try {
            subscribed.call(new byte[][] {ascii("SUBSCRIBE"), ascii(channel)}, timeout);
            isConfirmed = true;
            return subscribed;
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new ServerException("interrupted", interrupt);
        } finally {
            if (!isConfirmed) {
                subscribed.close();
            }
        }
    }

    /** A connection like the pool's, but outside it. */
    private Connection open() {
        try {
            return pool.getFactory().makeObject().getObject();
        } catch (Exception error) {
            throw read(error);
        }
    }

    static CommandArguments arguments(byte[][] words) {
        CommandArguments arguments = new CommandArguments(() -> words[0]);
        for (int at = 1; at < words.length; at++) {
            arguments.add(words[at]);
        }
        return arguments;
    }

    static RuntimeException read(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof JedisDataException) {
                return new ReplyException(String.valueOf(cause.getMessage()));
            }
        }
        if (error instanceof NoSuchElementException) {
            return new ServerException("no pool connection came free: " + error.getMessage(), error);
        }
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        String text = error.getMessage() == null ? error.toString() : error.getMessage();
        return new ServerException(root == error ? text : text + " (" + root.getMessage() + ")", error);
    }

    /** Turns maps into lists, and errors within lists into ReplyExceptions. */
    static Object plain(Object reply) {
        if (!(reply instanceof List<?> list)) {
            return reply;
        }
        List<Object> plain = new ArrayList<>(list.size());
        for (Object item : list) {
            if (item instanceof KeyValue<?, ?> pair) {
                plain.addAll(Arrays.asList(plain(pair.getKey()), plain(pair.getValue())));
            } else if (item instanceof JedisDataException error) {
                plain.add(new ReplyException(error.getMessage()));
            } else {
                plain.add(plain(item));
            }
        }
        return plain;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
