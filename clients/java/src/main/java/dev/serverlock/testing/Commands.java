package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.ReplyException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The commands of a server, as the package sends them. Thread-safe. */
final class Commands {
    private static final int LONGEST_RESULT = 65_536;

    private final ManualClock clock;
    private final Table table;

    Commands(ManualClock clock, Table table) {
        this.clock = clock;
        this.table = table;
    }

    ManualClock clock() {
        return clock;
    }

    Table table() {
        return table;
    }

    /**
     * Carries out a command. The reply to one that blocks comes later. from: the connection on which it may block;
     * otherwise null.
     */
    CompletableFuture<Object> run(MemoryConnection from, byte[][] words) {
        clock.threads().touch();
        List<String> texts = Arrays.stream(words).map(Commands::text).toList();
        try {
            return table.change(() -> reply(from, texts));
        } catch (ReplyException error) {
            return CompletableFuture.failedFuture(error);
        }
    }

    /** Keys are bytes. This text has one character for each. */
    static String text(byte[] word) {
        return new String(word, StandardCharsets.ISO_8859_1);
    }

    private CompletableFuture<Object> reply(MemoryConnection from, List<String> words) {
        String name = words.get(0);
        boolean isMany = name.startsWith("LOCK.M");
        int first = isMany ? 2 : 1;
        int end = isMany ? first + Integer.parseInt(words.get(1)) : Math.min(2, words.size());
        List<String> keys = words.subList(Math.min(first, end), end);
        List<String> rest = words.subList(end, words.size());
        return switch (name) {
            case "LOCK.ACQUIRE", "LOCK.MACQUIRE" -> table.acquire(Ask.read(keys, rest, false), from);
            case "LOCK.RECOVER" -> table.acquire(Ask.read(keys, rest, true), from);
            default -> Table.answered(atOnce(name, keys, rest));
        };
    }

    private Object atOnce(String name, List<String> keys, List<String> rest) {
        return switch (name) {
            case "LOCK.EXTEND", "LOCK.MEXTEND" -> extend(keys, number(rest.get(0)), number(rest.get(2)));
            case "LOCK.RELEASE" -> release(keys.get(0), number(rest.get(0)), result(rest));
            case "LOCK.MRELEASE" ->
                keys.stream()
                        .filter(key -> release(key, number(rest.get(0)), null) != 0)
                        .count();
            case "LOCK.CHECK" -> check(keys.get(0), number(rest.get(0)));
            case "LOCK.CANCEL" -> table.cancel(keys.get(0), rest.get(0));
            case "LOCK.INFO" -> info(table.key(keys.get(0)));
            case "EVAL" -> fenced(rest);
            case "TIME" -> time(clock.now());
            case "WAIT" -> 0L; // it has no replicas
            case "PING" -> Words.bytes("PONG");
            default -> throw new ReplyException("ERR unknown command '" + name + "': the server in memory lacks it");
        };
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    /** Extends the leases of all of the locks, or of none. */
    private long extend(List<String> keys, long token, long ms) {
        table.throwIfRefused(keys);
        long now = table.now();
        List<Grant> own = new ArrayList<>();
        for (String key : keys) {
            Grant grant = table.key(key).withToken(token);
            if (grant == null || grant.isPending || !grant.isLive(now)) {
                return 0;
            }
            own.add(grant);
        }
        own.forEach(grant -> grant.until = Grant.until(ms * Clock.MILLISECOND, now));
        table.serve(keys);
        return 1;
    }

    /** Returns what a release passes on to those that wait, or null. rest: a token, then RESULT and the value. */
    private static byte[] result(List<String> rest) {
        if (rest.size() == 1) {
            return null;
        }
        if (rest.get(2).length() > LONGEST_RESULT) {
            throw new ReplyException(
                    "ERR result is longer than " + LONGEST_RESULT + " bytes, the limit lock.result-max");
        }
        return rest.get(2).getBytes(StandardCharsets.ISO_8859_1);
    }

    /** Returns 1, -1 if the lease had expired, or 0 if there is no such grant. result: null for none. */
    long release(String name, long token, byte[] result) {
        Key key = table.key(name);
        Grant grant = key.withToken(token);
        if (grant == null) {
            return 0;
        }
        boolean wasLive = grant.isLive(table.now());
        key.holders.remove(grant);
        if (wasLive && result != null) {
            table.give(key, result);
        }
        table.serve(key);
        return wasLive ? 1 : -1;
    }

    private long check(String name, long token) {
        Grant grant = table.key(name).withToken(token);
        return grant == null ? 0 : grant.lease(table.now());
    }

    /** The reply to a script which runs a command only if the locks are held. rest: keys, token and command. */
    private Object fenced(List<String> rest) {
        int count = Integer.parseInt(rest.get(0)) - 1; // the last key is the command's
        long token = number(rest.get(count + 2));
        if (rest.subList(1, count + 1).stream().anyMatch(key -> check(key, token) == 0)) {
            return List.of(Words.bytes("LOCK.LOST"));
        }
        // ERR would mean that the server lacks the module.
        throw new ReplyException("MISCONF the server in memory lacks " + rest.get(count + 3));
    }

    private static List<Object> time(Instant now) {
        return List.of(Words.bytes("" + now.getEpochSecond()), Words.bytes("" + now.getNano() / 1000));
    }

    private List<Object> info(Key key) {
        long now = table.now();
        List<Object> fields = new ArrayList<>();
        Grant last = key.latest();
        String state = last == null ? "free" : last.isLive(now) ? "held" : "expired";
        add(fields, "state", Words.bytes(state));
        add(fields, "waiters", (long) key.waiting());
        if (last != null) {
            add(fields, "token", last.token);
            add(fields, "owner", last.owner == null ? null : Words.bytes(last.owner));
            add(fields, "lease-ms", last.lease(now));
            add(fields, "free-in-ms", Math.max(0, -Math.floorDiv(now - last.until, Clock.MILLISECOND)));
        }
        return fields;
    }

    private static void add(List<Object> fields, String name, Object value) {
        fields.add(Words.bytes(name));
        fields.add(value);
    }
}
