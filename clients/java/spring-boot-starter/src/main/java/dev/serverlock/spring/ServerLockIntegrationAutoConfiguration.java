package dev.serverlock.spring;

import dev.serverlock.Locks;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/** Declares Spring Integration's lock registry. */
@AutoConfiguration(after = ServerLockAutoConfiguration.class)
@ConditionalOnClass(RenewableLockRegistry.class)
@ConditionalOnSingleCandidate(Locks.class)
@ConditionalOnProperty(name = "serverlock.lock-registry.enabled", matchIfMissing = true)
public class ServerLockIntegrationAutoConfiguration {
    /** Creates the configuration. */
    public ServerLockIntegrationAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    ServerLockRegistry serverLockRegistry(Locks locks, ServerLockProperties properties) {
        ServerLockProperties.LockRegistry registry = properties.lockRegistry();
        return new ServerLockRegistry(locks, registry.prefix(), registry.lease());
    }
}
