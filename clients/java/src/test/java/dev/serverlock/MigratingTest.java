package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.shedlock.ServerLockProvider;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The lines for Java in docs/MIGRATING.md. */
class MigratingTest {
    private static TestServer server;
    private static Locks locks;
    private static RedissonClient redisson;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        locks = Locks.over(JedisServer.of(server.client));
        Config config = new Config();
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + server.port)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4);
        redisson = Redisson.create(config);
    }

    @AfterAll
    static void end() throws Exception {
        redisson.shutdown();
        locks.close();
        server.close();
    }

    /** What an application does with its lock. */
    private static void use(Lock report) throws Exception {
        report.lock();
        assertFalse(CompletableFuture.supplyAsync(report::tryLock).get(60, TimeUnit.SECONDS));
        report.unlock();
        assertTrue(report.tryLock(1, TimeUnit.SECONDS));
        report.unlock();
        assertThrows(IllegalMonitorStateException.class, report::unlock);
    }

    @Test
    void aProgramWithRedissonChangesOneLine() throws Exception {
        String page = Files.readString(Path.of("../../docs/MIGRATING.md"));
        assertTrue(page.contains("-Lock report = redisson.getLock(\"report\");\n"
                + "+Lock report = locks.lock(\"report\", Duration.ofSeconds(30)).asLock();\n"));
        use(redisson.getLock("report"));
        use(locks.lock("report", Duration.ofSeconds(30)).asLock());
        assertTrue(server.isFree("report"));
    }

    @Test
    void neitherSideTakesTheOthersKey() throws Exception {
        Lock theirs = redisson.getLock("key");
        theirs.lock();
        LockArgumentException ours = assertThrows(
                LockArgumentException.class,
                () -> locks.lock("key", Duration.ofSeconds(30)).acquire());
        assertTrue(ours.getMessage().contains("WRONGTYPE"), ours.getMessage());
        theirs.unlock();
        try (Held held = locks.lock("key", Duration.ofSeconds(30)).acquire()) {
            RuntimeException error = assertThrows(RuntimeException.class, theirs::tryLock);
            assertTrue(error.getMessage().contains("WRONGTYPE"), error.getMessage());
            held.check();
        }
    }

    @Test
    void aProgramWithShedLockChangesItsProvider() throws Exception {
        String page = Files.readString(Path.of("../../docs/MIGRATING.md"));
        assertTrue(page.contains("+LockProvider provider = new ServerLockProvider(locks);\n"));
        LockProvider provider = new ServerLockProvider(locks);
        var nightly = new net.javacrumbs.shedlock.core.LockConfiguration(
                java.time.Instant.now(), "nightly", Duration.ofMinutes(5), Duration.ZERO);
        var lock = provider.lock(nightly).orElseThrow();
        assertEquals("held", server.info("nightly", "state"));
        assertTrue(provider.lock(nightly).isEmpty());
        lock.unlock();
        assertTrue(server.isFree("nightly"));
    }
}
