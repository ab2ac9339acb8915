import static org.assertj.core.api.Assertions.assertThat;

import dev.serverlock.Locks;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.shedlock.ServerLockProvider;
import java.time.Duration;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import redis.clients.jedis.RedisClient;

/** The tests that ShedLock has for a provider of extensible locks, and its fuzz test. */
public class ProviderTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static RedisClient client;
    private static Locks locks;

    @BeforeAll
    static void connect() {
        client = RedisClient.create("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        locks = Locks.over(JedisServer.of(client));
    }

    @AfterAll
    static void close() {
        locks.close();
        client.close();
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new ServerLockProvider(locks);
    }

    @Override
    protected void assertUnlocked(String name) {
        assertThat(isLocked(name)).isFalse();
    }

    @Override
    protected void assertLocked(String name) {
        assertThat(isLocked(name)).isTrue();
    }

    private boolean isLocked(String name) {
        return getLockProvider()
                .lock(lockConfig(name, Duration.ofMinutes(5), Duration.ZERO))
                .map(lock -> {
                    lock.unlock();
                    return false;
                })
                .orElse(true);
    }
}
