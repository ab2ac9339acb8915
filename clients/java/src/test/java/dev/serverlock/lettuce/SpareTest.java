package dev.serverlock.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import dev.serverlock.TestServer;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.FakeServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.ByteArrayCodec;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The connection that replaces the shared one for a while. */
class SpareTest {
    @Test
    void aCommandThatWaitsForTheConnectionIsSentAlthoughTheSpareHasEnded() throws Exception {
        RedisClient client = RedisClient.create();
        try (FakeServer server = new FakeServer(command -> ":1\r\n")) {
            CompletableFuture<LettuceConnection> dialled = new CompletableFuture<>();
            Spare spare = new Spare(() -> dialled);
            Call call = FakeServer.call("LOCK.CHECK");
            CompletableFuture<Void> sent = spare.send(List.of(call), Duration.ofMinutes(1));
            spare.end(); // the shared connection replies again
            dialled.complete(new LettuceConnection(
                    client.connect(ByteArrayCodec.INSTANCE, RedisURI.create("127.0.0.1", server.port()))));
            sent.join();
            assertNull(call.error);
            assertEquals(1L, call.value);
            TestServer.until("it is closed", () -> server.open() == 0);
        } finally {
            client.shutdown();
        }
    }
}
