package dev.serverlock.suite;

import com.google.gson.JsonObject;
import dev.serverlock.Held;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Server;
import dev.serverlock.testing.LockServer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The servers in memory, by name, and the orders for them. */
final class Memory {
    private final Map<String, LockServer> servers = new ConcurrentHashMap<>();

    /** Whether an order opens a manager over one of them. */
    static boolean isAt(JsonObject order) {
        return "memory".equals(Order.text(order.getAsJsonObject("at"), "kind"));
    }

    private record Opened(Server server) implements Library.Client {
        @Override
        public Object raw(String[] words) {
            Call call = new Call(Arrays.stream(words).map(Words::bytes).toArray(byte[][]::new));
            server.node(new byte[0]).exchange(List.of(call), Duration.ZERO);
            if (call.error != null) {
                throw call.error;
            }
            return call.value;
        }
    }

    Library.Client open(JsonObject order) {
        return new Opened(named(order.getAsJsonObject("at")).client());
    }

    private LockServer named(JsonObject order) {
        return servers.computeIfAbsent(Order.text(order, "name"), name -> new LockServer());
    }

    void advance(JsonObject order) {
        named(order).clock().advance(Order.span(order.get("ms")));
    }

    void expire(JsonObject order) {
        named(order).expire(Order.key(order));
    }

    void refuse(JsonObject order) {
        named(order).refuse(Order.key(order));
    }

    void allow(JsonObject order) {
        named(order).allow(Order.key(order));
    }

    void lose(JsonObject order, Held held) {
        named(order).lose(held);
    }
}
