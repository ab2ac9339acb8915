package dev.serverlock.jedis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.FakeServer;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;

/** Calls over a Jedis pool. */
class JedisNodeTest {
    private static final Duration LONG = Duration.ofSeconds(20);

    @Test
    void aCallIsSentOnceEvenIfItsConnectionIsLost() throws Exception {
        try (FakeServer server = new FakeServer(command -> FakeServer.CLOSE);
                RedisClient client = RedisClient.create("127.0.0.1", server.port())) {
            Call call = FakeServer.call("LOCK.A");
            JedisServer.of(client).node(new byte[0]).exchange(List.of(call), LONG);
            assertInstanceOf(ServerException.class, call.error);
            assertNull(call.late);
            assertEquals(1, server.count("LOCK.A"));
        }
    }

    @Test
    void aCallThatIsNotAnsweredEndsInTimeAndClosesItsConnection() throws Exception {
        try (FakeServer server = new FakeServer(command -> command.equals("LOCK.A") ? FakeServer.SILENCE : ":7\r\n");
                RedisClient client = RedisClient.builder()
                        .hostAndPort("127.0.0.1", server.port())
                        .clientConfig(DefaultJedisClientConfig.builder()
                                .socketTimeoutMillis(0) // no time-out except the call's
                                .build())
                        .build()) {
            Node node = JedisServer.of(client).node(new byte[0]);
            Call silent = FakeServer.call("LOCK.A");
            Call behind = FakeServer.call("LOCK.B");
            node.exchange(List.of(silent), Duration.ofMillis(100));
            assertInstanceOf(ServerException.class, silent.error);
            node.exchange(List.of(behind), LONG);
            assertEquals(7L, behind.value, "not another call's reply");
            assertEquals(1, client.getPool().getDestroyedCount());
        }
    }

    @Test
    void callsInOneExchangeGetTheirOwnRepliesAndTheApplicationsTimeOutStays() throws Exception {
        try (FakeServer server = new FakeServer(
                        command -> command.equals("LOCK.A") ? "-GRACE not yet\r\n" : "*2\r\n:1\r\n$-1\r\n");
                RedisClient client = RedisClient.create("127.0.0.1", server.port())) {
            Call error = FakeServer.call("LOCK.A");
            Call list = FakeServer.call("LOCK.B");
            JedisServer.of(client).node(new byte[0]).exchange(List.of(error, list), LONG);
            assertEquals(
                    "GRACE not yet",
                    assertInstanceOf(ReplyException.class, error.error).getMessage());
            assertEquals(2, assertInstanceOf(List.class, list.value).size());
            try (var connection = client.getPool().getResource()) {
                assertEquals(2000, connection.getSoTimeout());
            }
            assertEquals(1, server.accepted());
        }
    }

    @Test
    void theEndOfAConnectionIsNoticedAndItDoesNotConnectAgain() throws Exception {
        try (FakeServer server = new FakeServer(command -> FakeServer.CLOSE);
                RedisClient client = RedisClient.create("127.0.0.1", server.port())) {
            Connection connection = JedisServer.of(client).node(new byte[0]).watch(LONG);
            int before = server.accepted();
            CountDownLatch ended = new CountDownLatch(1);
            connection.onEnd(ended::countDown);
            byte[][] words = FakeServer.call("LOCK.A").words;
            assertThrows(ServerException.class, () -> connection.call(words, LONG));
            assertTrue(ended.await(60, TimeUnit.SECONDS));
            assertFalse(connection.isOpen());
            assertThrows(ServerException.class, () -> connection.call(words, LONG));
            assertEquals(before, server.accepted());
        }
    }
}
