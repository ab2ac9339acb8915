package dev.serverlock.spring;

import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration;
import org.springframework.boot.actuate.autoconfigure.metrics.MetricsAutoConfiguration;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.context.annotation.Bean;

/** Declares the hooks that measure locks, which {@code management.metrics.enable.serverlock} turns off. */
@AutoConfiguration(
        before = ServerLockAutoConfiguration.class,
        after = {MetricsAutoConfiguration.class, CompositeMeterRegistryAutoConfiguration.class})
@ConditionalOnClass({MeterRegistry.class, MetricsAutoConfiguration.class})
@ConditionalOnSingleCandidate(MeterRegistry.class)
@ConditionalOnProperty(
        name = {"serverlock.enabled", "management.metrics.enable.serverlock"},
        matchIfMissing = true)
public class ServerLockMetricsAutoConfiguration {
    /** Creates the configuration. */
    public ServerLockMetricsAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    MicrometerHooks serverLockMicrometerHooks(MeterRegistry registry) {
        return new MicrometerHooks(registry);
    }
}
