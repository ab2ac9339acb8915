package dev.serverlock.suite;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.serverlock.LockLostException;
import dev.serverlock.Locks;
import dev.serverlock.Once;
import dev.serverlock.ServerLock;
import dev.serverlock.SingleFlight;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/** Reads the fields of orders. */
final class Order {
    private Order() {}

    static String text(JsonObject order, String field) {
        return order.has(field) && !order.get(field).isJsonNull()
                ? order.get(field).getAsString()
                : null;
    }

    static boolean is(JsonObject order, String field) {
        return order.has(field) && order.get(field).getAsBoolean();
    }

    /** Reads milliseconds. Null becomes a null Duration. Other types cannot be passed in Java. */
    static Duration span(JsonElement raw) {
        if (raw.isJsonNull()) {
            return null;
        }
        if (!raw.isJsonPrimitive() || !raw.getAsJsonPrimitive().isNumber()) {
            throw new Driver.Cannot("a duration that is " + raw);
        }
        return Duration.ofNanos((long) (raw.getAsDouble() * 1e6));
    }

    private static Duration lease(JsonObject order) {
        return span(order.get("lease_ms"));
    }

    static String[] texts(JsonArray array) {
        List<String> texts = new ArrayList<>();
        array.forEach(element -> texts.add(element.getAsString()));
        return texts.toArray(new String[0]);
    }

    /** Reads what compute returns: text, bytes as hex, or null. */
    static byte[] value(JsonElement raw) {
        if (raw == null || raw.isJsonNull()) {
            return null;
        }
        return raw.isJsonObject()
                ? HexFormat.of().parseHex(raw.getAsJsonObject().get("hex").getAsString())
                : raw.getAsString().getBytes(StandardCharsets.UTF_8);
    }

    /** A value in an answer: text where it is UTF-8, otherwise hex. */
    static Object plain(byte[] value) {
        String text = new String(value, StandardCharsets.UTF_8);
        return Arrays.equals(value, text.getBytes(StandardCharsets.UTF_8))
                ? text
                : Map.of("hex", HexFormat.of().formatHex(value));
    }

    private static String key(JsonElement raw) {
        if (raw.isJsonNull()) {
            return null;
        }
        if (!raw.isJsonPrimitive() || !raw.getAsJsonPrimitive().isString()) {
            throw new Driver.Cannot("a key that is " + raw);
        }
        return raw.getAsString();
    }

    static String key(JsonObject order) {
        return key(order.get("key"));
    }

    private static ServerLock kind(JsonObject order, Locks locks) {
        if (order.has("keys")) {
            List<String> keys = new ArrayList<>();
            order.getAsJsonArray("keys").forEach(key -> keys.add(key(key)));
            return locks.allOf(keys, lease(order));
        }
        JsonElement raw = order.get("key");
        if (raw.isJsonObject()) {
            return locks.lock(
                    HexFormat.of().parseHex(raw.getAsJsonObject().get("hex").getAsString()), lease(order));
        }
        if (is(order, "shared")) {
            return locks.shared(key(order), lease(order));
        }
        if (order.has("limit")) {
            return locks.limit(key(order), order.get("limit").getAsInt(), lease(order));
        }
        return is(order, "recover") ? locks.recover(key(order), lease(order)) : locks.lock(key(order), lease(order));
    }

    /** Returns the lock that an order describes. */
    static ServerLock lock(JsonObject order, Locks locks, Consumer<LockLostException> lost) {
        ServerLock lock = kind(order, locks).onLost(lost);
        Duration within =
                order.has("replicas_within_ms") ? span(order.get("replicas_within_ms")) : Duration.ofSeconds(1);
        lock = when(order.has("wait_ms"), lock, it -> it.waiting(span(order.get("wait_ms"))));
        lock = when(order.has("at_least_ms"), lock, it -> it.atLeast(span(order.get("at_least_ms"))));
        lock = when(order.has("max_hold_ms"), lock, it -> it.maxHold(span(order.get("max_hold_ms"))));
        String owner = text(order, "owner");
        lock = when(order.has("owner"), lock, it -> owner == null ? it.withoutOwner() : it.owner(owner));
        lock = when(is(order, "reentrant"), lock, ServerLock::reentrant);
        lock = when(is(order, "session"), lock, ServerLock::session);
        lock = when(is(order, "details"), lock, ServerLock::details);
        lock = when(
                order.has("replicas"),
                lock,
                it -> it.replicas(order.get("replicas").getAsInt(), within));
        return when(is(order, "fsync"), lock, it -> it.fsync(within));
    }

    /** Returns what an order runs once per period. */
    static Once once(JsonObject order, Locks locks, Consumer<LockLostException> lost) {
        Once once = locks.once(key(order), span(order.get("period_ms"))).onLost(lost);
        once = when(order.has("lease_ms"), once, it -> it.lease(lease(order)));
        once = when(order.has("rerun"), once, it -> it.rerun(is(order, "rerun")));
        once = when(order.has("max_hold_ms"), once, it -> it.maxHold(span(order.get("max_hold_ms"))));
        String owner = text(order, "owner");
        return when(order.has("owner"), once, it -> owner == null ? it.withoutOwner() : it.owner(owner));
    }

    /** Returns the value that an order wants. */
    static SingleFlight singleFlight(JsonObject order, Locks locks, Consumer<LockLostException> lost) {
        SingleFlight flight = locks.singleFlight(key(order), lease(order)).onLost(lost);
        flight = when(order.has("wait_ms"), flight, it -> it.waiting(span(order.get("wait_ms"))));
        flight = when(order.has("max_hold_ms"), flight, it -> it.maxHold(span(order.get("max_hold_ms"))));
        String owner = text(order, "owner");
        return when(order.has("owner"), flight, it -> owner == null ? it.withoutOwner() : it.owner(owner));
    }

    private static <T> T when(boolean isSo, T described, UnaryOperator<T> option) {
        return isSo ? option.apply(described) : described;
    }
}
