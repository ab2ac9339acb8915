package dev.serverlock.spring;

import dev.serverlock.Hooks;
import dev.serverlock.Locks;
import dev.serverlock.spi.Server;
import dev.serverlock.spring.ServerLockProperties.MissingModule;
import io.lettuce.core.RedisClient;
import java.util.List;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.Connection;

/**
 * Declares a {@link Locks} bean for the server of the application's Redis connection factory. A {@link Server} bean or
 * a {@link Locks} bean of the application replaces it.
 */
@AutoConfiguration(after = RedisAutoConfiguration.class)
@ConditionalOnProperty(name = "serverlock.enabled", matchIfMissing = true)
@EnableConfigurationProperties(ServerLockProperties.class)
public class ServerLockAutoConfiguration {
    /** Creates the configuration. */
    public ServerLockAutoConfiguration() {}

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({RedisClient.class, LettuceConnectionFactory.class})
    static class Lettuce {
        @Bean
        @ConditionalOnSingleCandidate(LettuceConnectionFactory.class)
        @ConditionalOnMissingBean({Server.class, Locks.class})
        LazyServer<?> serverLockServer(LettuceConnectionFactory factory) {
            return new LettuceServers(factory).server();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({Connection.class, JedisConnectionFactory.class})
    static class Jedis {
        @Bean
        @ConditionalOnSingleCandidate(JedisConnectionFactory.class)
        @ConditionalOnMissingBean({Server.class, Locks.class})
        LazyServer<?> serverLockServer(JedisConnectionFactory factory) {
            return new JedisServers(factory).server();
        }
    }

    @Bean
    @ConditionalOnSingleCandidate(Server.class)
    @ConditionalOnMissingBean
    Locks serverLocks(
            Server server,
            ServerLockProperties properties,
            ObjectProvider<Hooks> hooks,
            ObjectProvider<LocksBuilderCustomizer> customizers) {
        Locks.Builder builder = Locks.builder(server)
                .timeout(properties.timeout())
                .warnWithoutModule(properties.missingModule() == MissingModule.WARN);
        if (properties.missingModule() == MissingModule.REFUSE) {
            builder.withoutScripts();
        }
        List<Hooks> all = hooks.orderedStream().toList();
        if (!all.isEmpty()) {
            builder.hooks(Hooks.all(all));
        }
        customizers.orderedStream().forEach(customizer -> customizer.customize(builder));
        return builder.build();
    }
}
