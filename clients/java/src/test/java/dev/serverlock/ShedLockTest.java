package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.shedlock.ServerLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.UUID;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The provider beyond ShedLock's own tests, which scripts/compat.sh runs. */
class ShedLockTest {
    private static final Duration LONG = Duration.ofMinutes(5);

    private static TestServer server;
    private static Locks locks;
    private static ServerLockProvider provider;

    private final String name = UUID.randomUUID().toString();

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        server.call("CONFIG", "SET", "lock.margin-ms", 100);
        locks = Locks.over(JedisServer.of(server.client));
        provider = new ServerLockProvider(locks);
    }

    @AfterAll
    static void end() throws Exception {
        locks.close();
        server.close();
    }

    private LockConfiguration configuration(Duration atMost) {
        return new LockConfiguration(Instant.now(), name, atMost, Duration.ZERO);
    }

    private SimpleLock lock(Duration atMost) {
        return provider.lock(configuration(atMost)).orElseThrow();
    }

    @Test
    void aLockThatHasEndedCanBeUnlockedAsWithShedLocksOwnProviders() throws Exception {
        SimpleLock lock = lock(Duration.ofMillis(2));
        TestServer.until("it has ended", () -> server.info(name, "state").equals("expired")); // it is not renewed
        lock.unlock();
    }

    @Test
    void errorsAreShedLocksOwnAndNameTheLockAndTheReason() {
        server.call("LPUSH", name, "x");
        LockException error = assertThrows(LockException.class, () -> lock(LONG));
        assertTrue(error.getMessage().contains(name) && error.getMessage().contains("WRONGTYPE"), error.getMessage());
    }

    @Test
    void operatorsSeePrefixAndOwner() {
        SimpleLock lock = provider.withPrefix("jobs:")
                .withOwner("host-7")
                .lock(configuration(LONG))
                .orElseThrow();
        assertEquals("host-7", server.info("jobs:" + name, "owner"));
        lock.unlock();
    }

    @Test
    void withoutAnOwnerTheValueIsANumberForClassicClients() {
        SimpleLock lock = lock(LONG);
        assertEquals("", server.info(name, "owner"));
        String value = server.client.get(name);
        assertTrue(value.matches("\\d{10}\\.\\d+"), value);
        lock.unlock();
    }
}
