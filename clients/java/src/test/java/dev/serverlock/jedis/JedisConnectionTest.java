package dev.serverlock.jedis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.spi.Connection;
import dev.serverlock.spi.FakeServer;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;

/** A connection read by its caller. */
class JedisConnectionTest {
    private static final Duration LONG = Duration.ofMinutes(2);

    private FakeServer server;
    private RedisClient client;

    private Connection open(String reply) throws Exception {
        server = new FakeServer(command -> reply);
        client = RedisClient.create("127.0.0.1", server.port());
        return JedisServer.of(client).node(new byte[0]).dial(LONG);
    }

    @AfterEach
    void end() throws Exception {
        client.close();
        server.close();
    }

    private static Object call(Connection connection, Duration timeout) throws InterruptedException {
        return connection.call(FakeServer.call("LOCK.A").words, timeout);
    }

    @Test
    void itReturnsRepliesAndErrorsAndStaysOpen() throws Exception {
        Connection connection = open(":7\r\n");
        assertEquals(7L, call(connection, LONG));
        assertEquals(7L, call(connection, Duration.ofSeconds(5)));
        assertTrue(connection.isOpen());
        connection.close();
        Connection other = open("-GRACE not yet\r\n");
        assertEquals(
                "GRACE not yet",
                assertThrows(ReplyException.class, () -> call(other, LONG)).getMessage());
        assertTrue(other.isOpen());
    }

    @Test
    void anInterruptEndsTheCallAndTheConnection() throws Exception {
        Connection connection = open(FakeServer.SILENCE);
        CountDownLatch ended = new CountDownLatch(1);
        connection.onEnd(ended::countDown);
        CompletableFuture<Throwable> thrown = new CompletableFuture<>();
        Thread caller = new Thread(() -> {
            try {
                call(connection, LONG);
            } catch (InterruptedException | RuntimeException error) {
                thrown.complete(error);
            }
        });
        caller.start();
        long end = System.nanoTime() + LONG.toNanos();
        while (server.count("LOCK.A") == 0 && System.nanoTime() < end) {
            Thread.sleep(1);
        }
        caller.interrupt();
        assertInstanceOf(InterruptedException.class, thrown.get(60, TimeUnit.SECONDS));
        assertTrue(ended.await(60, TimeUnit.SECONDS));
        assertFalse(connection.isOpen());
    }

    @Test
    void aMissingReplyClosesIt() throws Exception {
        Connection connection = open(FakeServer.SILENCE);
        assertThrows(ServerException.class, () -> call(connection, Duration.ofMillis(100)));
        assertFalse(connection.isOpen());
    }

    @Test
    void onceClosedItDoesNotConnectAgain() throws Exception {
        Connection connection = open(":7\r\n");
        int before = server.accepted();
        connection.close();
        assertThrows(ServerException.class, () -> call(connection, LONG));
        assertEquals(before, server.accepted());
        assertEquals(0, server.count("LOCK.A"));
    }
}
