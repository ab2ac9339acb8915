/**
 * Distributed locks for Redis and Valkey servers with the redis-lock module. Start with {@link dev.serverlock.Locks}.
 * Jedis, Lettuce and ShedLock are optional: an application adds those that it uses.
 */
@SuppressWarnings("requires-automatic") // Jedis and Lettuce have no descriptor
module dev.serverlock {
    // Not transitive: javac would then demand all three from each application that is a module.
    requires static redis.clients.jedis;
    requires static org.apache.commons.pool2;
    requires static lettuce.core;
    requires static io.netty.buffer;
    requires static net.javacrumbs.shedlock.core;

    exports dev.serverlock;
    exports dev.serverlock.jedis;
    exports dev.serverlock.lettuce;
    exports dev.serverlock.shedlock;
    exports dev.serverlock.spi;
    exports dev.serverlock.testing;
}
