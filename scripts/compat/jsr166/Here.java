package jsr166;

import dev.serverlock.Locks;
import dev.serverlock.jedis.JedisServer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.UUID;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.RedisClient;

/** The server of these tests. */
final class Here {
    static final Duration LEASE = Duration.ofSeconds(60);

    private static final RedisClient CLIENT = RedisClient.create("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
    static final Locks LOCKS = Locks.over(JedisServer.of(CLIENT));

    private Here() {}

    static String key() {
        return UUID.randomUUID().toString();
    }

    /** A field of LOCK.INFO: a number, a text, a list, or null. */
    static Object info(String key, String field) {
        CommandArguments words = new CommandArguments(() -> "LOCK.INFO".getBytes(StandardCharsets.UTF_8));
        return CLIENT.executeCommand(new CommandObject<>(words.add(key).add("FULL"), BuilderFactory.ENCODED_OBJECT_MAP))
                .get(field);
    }

    static boolean isHeld(String key) {
        return "held".equals(info(key, "state"));
    }

    static int waiters(String key) {
        return (int) (long) (Long) info(key, "waiters");
    }
}
