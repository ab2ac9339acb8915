package dev.serverlock.spring;

import dev.serverlock.Locks;
import dev.serverlock.shedlock.ServerLockProvider;
import net.javacrumbs.shedlock.core.LockProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.context.annotation.Bean;

/** Declares ShedLock's lock provider. The application enables ShedLock itself, with {@code @EnableSchedulerLock}. */
@AutoConfiguration(after = ServerLockAutoConfiguration.class)
@ConditionalOnClass(LockProvider.class)
@ConditionalOnSingleCandidate(Locks.class)
@ConditionalOnProperty(name = "serverlock.shedlock.enabled", matchIfMissing = true)
public class ServerLockShedLockAutoConfiguration {
    /** Creates the configuration. */
    public ServerLockShedLockAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(LockProvider.class)
    ServerLockProvider serverLockProvider(Locks locks, ServerLockProperties properties) {
        ServerLockProperties.Shedlock shedlock = properties.shedlock();
        ServerLockProvider provider = new ServerLockProvider(locks).withPrefix(shedlock.prefix());
        return shedlock.owner().isEmpty() ? provider : provider.withOwner(shedlock.owner());
    }
}
