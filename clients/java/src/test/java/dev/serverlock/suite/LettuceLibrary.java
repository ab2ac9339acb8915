package dev.serverlock.suite;

import com.google.gson.JsonObject;
import dev.serverlock.lettuce.LettuceServer;
import dev.serverlock.spi.Server;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.protocol.RedisCommand;
import io.netty.channel.epoll.Epoll;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Lettuce, with one connection. */
final class LettuceLibrary implements Library {
    private record Opened(Server server, Consumer<RedisCommand<String, String, List<Object>>> dispatch)
            implements Client {
        @Override
        public Object raw(String[] words) {
            CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
            for (int at = 1; at < words.length; at++) {
                args.add(words[at]);
            }
            AsyncCommand<String, String, List<Object>> command =
                    new AsyncCommand<>(new Command<>(named(words[0]), new ArrayOutput<>(StringCodec.UTF8), args));
            dispatch.accept(command);
            command.await(20, TimeUnit.SECONDS);
            List<Object> reply = command.join();
            return reply.size() == 1 ? reply.get(0) : reply;
        }
    }

    private static final List<String> ONLY_THREADS =
            List.of("stop", "session", "deadlock", "leader", "scopes", "once", "reentrant");

    private final Calls calls;

    LettuceLibrary(Calls calls) {
        this.calls = calls;
    }

    @Override
    public Calls calls() {
        return calls;
    }

    private static ProtocolKeyword named(String name) {
        return () -> name.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String version() {
        return Library.versionOf(RedisClient.class, "lettuce-core");
    }

    @Override
    public List<String> can() {
        List<String> all = Epoll.isAvailable() ? Library.abilities("unix") : Library.abilities();
        if (calls == Calls.FUTURES) {
            all.removeAll(ONLY_THREADS); // what a lock has only if it belongs to a thread
            all.add("polls");
        }
        return all;
    }

    private static RedisURI.Builder credentials(RedisURI.Builder uri, JsonObject at) {
        String password = Order.text(at, "password");
        if (password == null) {
            return uri;
        }
        String user = Order.text(at, "user");
        return user == null ? uri.withPassword(password.toCharArray()) : uri.withAuthentication(user, password);
    }

    private static RedisURI uri(JsonObject at) {
        RedisURI.Builder uri = switch (Order.text(at, "kind")) {
            case "single" ->
                RedisURI.builder()
                        .withHost(Order.text(at, "host"))
                        .withPort(at.get("port").getAsInt())
                        .withSsl(at.has("tls"));
            case "unix" -> RedisURI.Builder.socket(Order.text(at, "path"));
            case "sentinel" -> {
                RedisURI.Builder builder = RedisURI.builder().withSentinelMasterId(Order.text(at, "master"));
                Library.addresses(at.getAsJsonArray("sentinels"))
                        .forEach(address -> builder.withSentinel(address.host(), address.port()));
                yield builder;
            }
            default -> throw new Driver.Cannot(Order.text(at, "kind"));
        };
        return credentials(uri, at).build();
    }

    @Override
    public Client open(JsonObject order) {
        JsonObject at = order.getAsJsonObject("at");
        if (Order.text(at, "kind").equals("cluster")) {
            List<RedisURI> uris = Library.addresses(at.getAsJsonArray("nodes")).stream()
                    .map(address -> RedisURI.create(address.host(), address.port()))
                    .toList();
            RedisClusterClient client = RedisClusterClient.create(uris);
            StatefulRedisClusterConnection<String, String> connection = client.connect();
            return new Opened(LettuceServer.of(client, connection), connection::dispatch);
        }
        RedisURI uri = uri(at);
        RedisClient client = RedisClient.create(uri);
        ClientOptions.Builder options = ClientOptions.builder();
        if (order.has("protocol")) {
            options.protocolVersion(
                    order.get("protocol").getAsInt() == 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2);
        }
        if (at.has("tls")) {
            File authority = new File(at.getAsJsonObject("tls").get("ca").getAsString());
            options.sslOptions(SslOptions.builder()
                    .jdkSslProvider()
                    .trustManager(authority)
                    .build());
        }
        client.setOptions(options.build());
        Once once = new Once(client);
        try {
            once.get();
        } catch (RedisException noServer) {
            // Its first use reports it.
        }
        return new Opened(
                LettuceServer.of(client, uri, once::get), command -> once.get().dispatch(command));
    }

    /** The application's connection, from its first use on. */
    private static final class Once {
        private final RedisClient client;
        private StatefulRedisConnection<String, String> connection;

        Once(RedisClient client) {
            this.client = client;
        }

        synchronized StatefulRedisConnection<String, String> get() {
            if (connection == null) {
                connection = client.connect();
            }
            return connection;
        }
    }
}
