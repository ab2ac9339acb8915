package dev.serverlock.spring;

import dev.serverlock.spi.Server;
import org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.context.annotation.Bean;

/** Declares the health of the locks' server, which {@code management.health.serverlock.enabled} turns off. */
@AutoConfiguration(after = ServerLockAutoConfiguration.class)
@ConditionalOnClass({HealthIndicator.class, ConditionalOnEnabledHealthIndicator.class})
@ConditionalOnSingleCandidate(Server.class)
@ConditionalOnEnabledHealthIndicator("serverlock")
public class ServerLockHealthAutoConfiguration {
    /** Creates the configuration. */
    public ServerLockHealthAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(name = "serverlockHealthIndicator")
    ServerLockHealthIndicator serverlockHealthIndicator(Server server, ServerLockProperties properties) {
        return new ServerLockHealthIndicator(server, properties.timeout(), properties.missingModule());
    }
}
