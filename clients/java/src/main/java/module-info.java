/**
 * Distributed locks for Redis and Valkey servers with the redis-lock module. Start with {@link dev.serverlock.Locks}.
 * Jedis, Lettuce, ShedLock and OpenTelemetry are optional: an application adds those that it uses.
 */
@SuppressWarnings("requires-automatic") // some of these have no descriptor
module dev.serverlock {
    // Not transitive: javac would then demand all of them from each application that is a module.
    requires static redis.clients.jedis;
    requires static org.apache.commons.pool2;
    requires static lettuce.core;
    requires static io.netty.buffer;
    requires static net.javacrumbs.shedlock.core;
    requires static io.opentelemetry.api;
    requires static io.opentelemetry.context;
    requires static io.opentelemetry.common;

    exports dev.serverlock;
    exports dev.serverlock.jedis;
    exports dev.serverlock.lettuce;
    exports dev.serverlock.opentelemetry;
    exports dev.serverlock.shedlock;
    exports dev.serverlock.spi;
    exports dev.serverlock.testing;
}
