package dev.serverlock.spring;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration;
import org.springframework.boot.actuate.autoconfigure.metrics.MetricsAutoConfiguration;
import org.springframework.boot.actuate.autoconfigure.metrics.export.simple.SimpleMetricsExportAutoConfiguration;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.io.ClassPathResource;

/** Application contexts with Spring Boot's Redis and metrics, and all configurations that the starter registers. */
final class Contexts {
    private static final String IMPORTS =
            "META-INF/spring/org.springframework.boot.autoconfigure.AutoConfiguration.imports";

    private Contexts() {}

    static ApplicationContextRunner withoutMetrics() {
        return new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(RedisAutoConfiguration.class))
                .withConfiguration(AutoConfigurations.of(registered()));
    }

    static ApplicationContextRunner plain() {
        return withoutMetrics()
                .withConfiguration(AutoConfigurations.of(
                        MetricsAutoConfiguration.class,
                        CompositeMeterRegistryAutoConfiguration.class,
                        SimpleMetricsExportAutoConfiguration.class));
    }

    static ApplicationContextRunner on(int port) {
        return plain().withPropertyValues("spring.data.redis.host=127.0.0.1", "spring.data.redis.port=" + port);
    }

    private static Class<?>[] registered() {
        try {
            String names = new ClassPathResource(IMPORTS).getContentAsString(StandardCharsets.UTF_8);
            return names.lines()
                    .map(name -> {
                        try {
                            return Class.forName(name);
                        } catch (ClassNotFoundException wrong) {
                            throw new IllegalStateException(wrong);
                        }
                    })
                    .toArray(Class<?>[]::new);
        } catch (IOException missing) {
            throw new UncheckedIOException(missing);
        }
    }
}
