package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.lettuce.LettuceServer;
import dev.serverlock.spi.FakeServer;
import dev.serverlock.spi.Server;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** The number of threads that renew, release and report losses stays small. */
class RenewalTest {
    private static final int HOLDS = 3000;
    private static final int MOST = 10;

    /** Grants everything until it falls silent. */
    private static UnaryOperator<String> silent(AtomicBoolean isSilent) {
        AtomicInteger token = new AtomicInteger();
        return command -> isSilent.get() ? FakeServer.SILENCE : ":" + token.incrementAndGet() + "\r\n";
    }

    private static void lose(Server over, AtomicBoolean isSilent) throws Exception {
        TestServer.until("the threads of other tests have ended", () -> Census.threads() == 0);
        CountDownLatch mayEnd = new CountDownLatch(1);
        AtomicInteger lost = new AtomicInteger();
        Locks.Builder options = Locks.builder(over).logger(System.getLogger("silent"));
        List<Held> holds = new ArrayList<>();
        try (Locks locks = options.build()) {
            for (int number = 0; number < HOLDS; number++) {
                holds.add(locks.lock("k" + number, Duration.ofSeconds(9))
                        .onLost(why -> {
                            await(mayEnd);
                            lost.incrementAndGet();
                        })
                        .acquire());
            }
            isSilent.set(true);
            long most = 0;
            long end = System.nanoTime() + Duration.ofMinutes(2).toNanos();
            while (holds.stream().anyMatch(held -> !held.left().isZero())) {
                most = Math.max(most, Census.threads());
                assertTrue(most <= MOST, most + " threads");
                assertTrue(System.nanoTime() < end, "the holds are not lost");
                Thread.sleep(10);
            }
            most = Math.max(most, Census.threads());
            mayEnd.countDown();
            TestServer.until("all losses are reported", () -> lost.get() == HOLDS);
            assertTrue(most <= MOST, most + " threads");
        }
        assertEquals(HOLDS, holds.size());
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void thousandsOfHoldsAndASilentServerTakeFewThreadsOverJedis() throws Exception {
        AtomicBoolean isSilent = new AtomicBoolean();
        try (FakeServer server = new FakeServer(silent(isSilent));
                redis.clients.jedis.RedisClient client =
                        redis.clients.jedis.RedisClient.create("127.0.0.1", server.port())) {
            lose(JedisServer.of(client), isSilent);
        }
    }

    @Test
    void thousandsOfHoldsAndASilentServerTakeFewThreadsOverLettuce() throws Exception {
        AtomicBoolean isSilent = new AtomicBoolean();
        try (FakeServer server = new FakeServer(silent(isSilent))) {
            RedisURI uri = RedisURI.create("127.0.0.1", server.port());
            RedisClient client = RedisClient.create(uri);
            try {
                lose(LettuceServer.of(client, uri, client.connect()), isSilent);
            } finally {
                client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
            }
        }
    }
}
