package dev.serverlock.suite;

import com.google.gson.JsonObject;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.spi.Server;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;

/** Jedis, with pools. */
final class JedisLibrary implements Library {
    private record Opened(Server server, UnifiedJedis jedis) implements Client {
        @Override
        public Object raw(String[] words) {
            CommandArguments arguments = new CommandArguments(() -> words[0].getBytes(StandardCharsets.UTF_8));
            for (int at = 1; at < words.length; at++) {
                arguments.add(words[at]);
            }
            return jedis.executeCommand(new CommandObject<>(arguments, BuilderFactory.RAW_OBJECT));
        }
    }

    @Override
    public String version() {
        return Library.versionOf(RedisClient.class, "jedis");
    }

    @Override
    public List<String> can() {
        return Library.abilities("pooled");
    }

    @SuppressWarnings("deprecation") // its new options take files created by the JDK's keytool
    @Override
    public Client open(JsonObject order) throws Exception {
        JsonObject at = order.getAsJsonObject("at");
        DefaultJedisClientConfig.Builder config =
                DefaultJedisClientConfig.builder().user(Order.text(at, "user")).password(Order.text(at, "password"));
        if (order.has("protocol")) {
            config.protocol(order.get("protocol").getAsInt() == 3 ? RedisProtocol.RESP3 : RedisProtocol.RESP2);
        }
        if (at.has("tls")) {
            Path authority = Path.of(at.getAsJsonObject("tls").get("ca").getAsString());
            config.ssl(true).sslSocketFactory(Library.trusting(authority).getSocketFactory());
        }
        switch (Order.text(at, "kind")) {
            case "single" -> {
                RedisClient client = RedisClient.builder()
                        .hostAndPort(Order.text(at, "host"), at.get("port").getAsInt())
                        .clientConfig(config.build())
                        .build();
                return new Opened(JedisServer.of(client), client);
            }
            case "sentinel" -> {
                RedisSentinelClient client = RedisSentinelClient.builder()
                        .masterName(Order.text(at, "master"))
                        .sentinels(nodes(at, "sentinels"))
                        .clientConfig(config.build())
                        .build();
                return new Opened(JedisServer.of(client), client);
            }
            case "cluster" -> {
                RedisClusterClient client = RedisClusterClient.builder()
                        .nodes(nodes(at, "nodes"))
                        .clientConfig(config.build())
                        .build();
                return new Opened(JedisServer.of(client), client);
            }
            default -> throw new Driver.Cannot(Order.text(at, "kind"));
        }
    }

    private static Set<HostAndPort> nodes(JsonObject at, String field) {
        return Library.addresses(at.getAsJsonArray(field)).stream()
                .map(address -> new HostAndPort(address.host(), address.port()))
                .collect(Collectors.toSet());
    }
}
