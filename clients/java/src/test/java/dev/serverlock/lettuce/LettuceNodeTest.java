package dev.serverlock.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.FakeServer;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.ServerException;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Calls over Lettuce's one connection. */
class LettuceNodeTest {
    private static final Duration LONG = Duration.ofMinutes(1);

    private FakeServer server;
    private RedisClient client;

    private Node open(UnaryOperator<String> answer) throws Exception {
        server = new FakeServer(answer);
        RedisURI uri = RedisURI.create("127.0.0.1", server.port());
        client = RedisClient.create(uri);
        client.setOptions(ClientOptions.builder()
                .timeoutOptions(TimeoutOptions.enabled(Duration.ofMillis(100)))
                .build());
        StatefulRedisConnection<String, String> connection = client.connect();
        return LettuceServer.of(client, uri, connection).node(new byte[0]);
    }

    @AfterEach
    void end() throws Exception {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
        server.close();
    }

    @Test
    void aCallThatWasWrittenIsNotWrittenAgainAfterAReconnect() throws Exception {
        Node node = open(command -> command.equals("LOCK.A") ? FakeServer.CLOSE : ":7\r\n");
        Call lost = FakeServer.call("LOCK.A");
        node.exchange(List.of(lost), LONG);
        assertInstanceOf(ServerException.class, lost.error);
        assertNull(lost.late);
        Call next = FakeServer.call("LOCK.B");
        node.exchange(List.of(next), LONG);
        assertEquals(7L, next.value);
        assertFalse(next.wasResent);
        assertEquals(1, server.count("LOCK.A"));
        assertEquals(2, server.accepted());
    }

    @Test
    void aLateReplyIsStillTheReply() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        Node node = open(command -> {
            try {
                mayAnswer.await(60, TimeUnit.SECONDS);
            } catch (InterruptedException ended) {
                return FakeServer.CLOSE;
            }
            return ":7\r\n";
        });
        Call call = FakeServer.call("LOCK.A");
        node.exchange(List.of(call), Duration.ofMillis(400)); // past the library's time-out
        assertInstanceOf(ServerException.class, call.error);
        assertNotNull(call.late);
        assertFalse(call.late.isDone());
        mayAnswer.countDown();
        assertEquals(7L, call.late.get(60, TimeUnit.SECONDS));
    }

    @Test
    void aCallThatWasNotWrittenIsNeverWritten() throws Exception {
        Node node = open(command -> command.equals("LOCK.A") ? FakeServer.CLOSE : ":7\r\n");
        server.close(); // so that it cannot reconnect
        node.exchange(List.of(FakeServer.call("LOCK.A")), LONG);
        Call call = FakeServer.call("LOCK.B");
        node.exchange(List.of(call), Duration.ofMillis(200));
        assertInstanceOf(ServerException.class, call.error);
        assertNull(call.late, "the call is not on its way");
        server = new FakeServer(command -> ":7\r\n", server.port());
        Call next = FakeServer.call("LOCK.C");
        node.exchange(List.of(next), LONG);
        assertEquals(7L, next.value);
        assertEquals(0, server.count("LOCK.B"));
    }

    @Test
    void whileAReplyIsOverdueOtherCallsGoOverAnotherConnection() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        Node node = open(command -> {
            try {
                return !command.equals("LOCK.A") || mayAnswer.await(60, TimeUnit.SECONDS) ? ":7\r\n" : FakeServer.CLOSE;
            } catch (InterruptedException ended) {
                return FakeServer.CLOSE;
            }
        });
        Call overdue = FakeServer.call("LOCK.A");
        node.exchange(List.of(overdue), Duration.ofMillis(200));
        assertNotNull(overdue.late);
        for (int turn = 0; turn < 3; turn++) {
            Call one = FakeServer.call("LOCK.B");
            Call two = FakeServer.call("LOCK.C");
            node.exchange(List.of(one, two), LONG);
            assertEquals(7L, one.value);
            assertEquals(7L, two.value);
        }
        assertEquals(2, server.accepted(), "the application's connection, and one more");
        mayAnswer.countDown();
        assertEquals(7L, overdue.late.get(60, TimeUnit.SECONDS));
        long end = System.nanoTime() + LONG.toNanos();
        while (server.open() > 1 && System.nanoTime() < end) {
            Thread.sleep(1);
        }
        assertEquals(1, server.open(), "the other connection is closed");
        Call next = FakeServer.call("LOCK.B");
        node.exchange(List.of(next), LONG);
        assertEquals(7L, next.value);
        assertEquals(2, server.accepted());
    }

    @Test
    void theEndOfAConnectionIsNoticedAndItDoesNotConnectAgain() throws Exception {
        Connection connection = open(command -> FakeServer.CLOSE).watch(LONG);
        CountDownLatch ended = new CountDownLatch(1);
        connection.onEnd(ended::countDown);
        byte[][] words = FakeServer.call("LOCK.A").words;
        assertThrows(ServerException.class, () -> connection.call(words, LONG));
        assertTrue(ended.await(60, TimeUnit.SECONDS));
        assertFalse(connection.isOpen());
        assertThrows(ServerException.class, () -> connection.call(words, LONG));
        assertEquals(2, server.accepted(), "the application's connection, and the dedicated one");
    }
}
