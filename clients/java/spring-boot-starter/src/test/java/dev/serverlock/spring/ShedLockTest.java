package dev.serverlock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import dev.serverlock.spi.Server;
import dev.serverlock.testing.LockServer;
import java.time.Duration;
import java.time.Instant;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.Test;

/** ShedLock finds a lock provider. */
class ShedLockTest {
    private static final LockConfiguration NIGHTLY =
            new LockConfiguration(Instant.now(), "nightly", Duration.ofMinutes(5), Duration.ZERO);

    @Test
    void theProviderLocksWithThePrefix() throws Exception {
        LockServer server = new LockServer();
        Contexts.on(1)
                .withBean(Server.class, server::client)
                .withPropertyValues("serverlock.shedlock.prefix=shed:", "serverlock.shedlock.owner=host-7")
                .run(context -> {
                    LockProvider provider = context.getBean(LockProvider.class);
                    assertThat(provider).isInstanceOf(ExtensibleLockProvider.class);
                    SimpleLock lock = provider.lock(NIGHTLY).orElseThrow();
                    assertThat(provider.lock(NIGHTLY)).isEmpty();
                    assertThat(server.locks()
                                    .lock("shed:nightly", Duration.ofSeconds(1))
                                    .asLock()
                                    .tryLock())
                            .isFalse();
                    lock.unlock();
                    assertThat(provider.lock(NIGHTLY)).isPresent();
                });
    }
}
