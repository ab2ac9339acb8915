package dev.serverlock.internal.command;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Locks without the module: sends the scripts by hash. Keys, values, replies and errors are the same as with the
 * commands. A call also names the lock's queue, unless this user may not touch it. Thread-safe.
 */
public final class Portable {
    private static final long MARGIN = 1000;
    private static final long RETENTION = 60_000;
    /** How long the eviction policy is remembered. After a failover, the new server's policy may differ. */
    private static final long POLICY_VALID_FOR = 60 * Clock.SECOND;
    /** How long locks are used without their queues after this user was denied one. */
    private static final long ALONE = 60 * Clock.SECOND;

    /** Checks the lock like the other scripts, then runs one of the user's commands. */
    public static final String FENCED = """
            local time, token = redis.call('TIME'), ('%016.0f'):format(ARGV[1])
            for i = 1, #KEYS - 1 do
                local value, ends = redis.pcall('GET', KEYS[i]), 0
                if value and value.err then -- several holders
                    local holders = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
                    for j = 1, #holders, 2 do
                        if holders[j]:sub(1, 16) == token then ends = holders[j + 1] end
                    end
                elseif value and value:sub(18, 33) == token then
                    ends = value:sub(1, 17)
                end
                if ends - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
            end
            return {redis.call(unpack(ARGV, 2))}
            """;

    /** The function library without its first line, which EVAL does not accept. */
    private static final byte[] SCRIPT = script();

    private static final String DIGEST = digest();
    private static final byte[][] NO_ARGS = {};

    private final Context context;
    private boolean isLoaded;
    private long retention = -1;
    private long askedAt;
    private boolean hasAsked;
    private long aloneUntil;
    private boolean isAlone;

    public Portable(Context context) {
        this.context = context;
    }

    private static byte[] script() {
        try (InputStream file = Portable.class.getResourceAsStream("/dev/serverlock/lock.lua")) {
            String source = Words.text(file.readAllBytes());
            return Words.bytes(source.startsWith("#!") ? source.substring(source.indexOf('\n') + 1) : source);
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static String digest() {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(SCRIPT));
        } catch (NoSuchAlgorithmException everyJavaHasIt) {
            throw new AssertionError(everyJavaHasIt);
        }
    }

    /** channel: null to ask without waiting. isAlone: without the queue, if it may be left out. */
    public CompletableFuture<Object> acquire(
            Exchange exchange, Request request, byte[] id, long wait, String channel, boolean isAlone) {
        String name = request.isRecovery() ? "lock_recover" : "lock_acquire";
        byte[][] args = request.scripted(id, channel == null ? 0 : wait, channel);
        byte[][] argsAlone = request.scripted(id, 0, null);
        return askPolicy(exchange).thenCompose(asked -> call(exchange, request, name, args, argsAlone, isAlone));
    }

    public CompletableFuture<Object> info(Exchange exchange, Request request) {
        return call(exchange, request, "lock_info", NO_ARGS, NO_ARGS, false);
    }

    /** Releases what this ID may have been granted, and ends its wait. */
    public CompletableFuture<?> cancel(Exchange exchange, Request request, byte[] id, String channel) {
        if (!request.hasQueue() || isAlone()) {
            return cancelAlone(exchange, request, id);
        }
        byte[][] args = new Words(6)
                .add("ID")
                .add(id)
                .add("NOTIFY")
                .add(channel)
                .addAll(request.share())
                .done();
        return ask(exchange, request.scriptKeys(false), "lock_cancel", args).exceptionallyCompose(error -> {
            boolean isDenied = Exchange.cause(error) instanceof ReplyError refusal
                    && refusal.code().equals("NOPERM");
            return isDenied ? cancelAlone(exchange, request, id) : CompletableFuture.failedFuture(error);
        });
    }

    /** For a user who may not touch the queue. The same ID gets the same token again. */
    private CompletableFuture<Object> cancelAlone(Exchange exchange, Request request, byte[] id) {
        byte[][] same = new Words(6)
                .add("PX")
                .add(1)
                .add("ID")
                .add(id)
                .addAll(request.share())
                .done();
        return call(exchange, request, "lock_acquire", same, same, false).thenCompose(reply -> {
            if (!(reply instanceof Long token)) {
                return CompletableFuture.completedFuture(null);
            }
            byte[][] args = new Words(1).add(token).done();
            return call(exchange, request, "lock_release", args, args, false);
        });
    }

    private synchronized byte[][] words(List<byte[]> keys, String name, byte[][] args) {
        Words words = new Words(args.length + keys.size() + 6);
        if (isLoaded) {
            words.add("EVALSHA").add(DIGEST);
        } else {
            words.add("EVAL").add(SCRIPT);
        }
        words.add(keys.size());
        keys.forEach(words::add);
        return words.add(name).add(MARGIN).add(retention).addAll(args).done();
    }

    private byte[][] words(Request request, String name, byte[][] args, boolean isAlone) {
        return words(request.scriptKeys(isAlone), request.isMany() ? name + "_all" : name, args);
    }

    public byte[][] extend(Request request, long token, long lease, boolean isAlone) {
        byte[][] args =
                new Words(3).add(token).add("PX").add(Clock.milliseconds(lease)).done();
        return words(request, "lock_extend", args, isAlone);
    }

    public byte[][] release(Request request, long token, boolean isAlone) {
        return words(request, "lock_release", new Words(1).add(token).done(), isAlone);
    }

    /** The words to check one of the locks. */
    public byte[][] check(Request request, int lock, long token, boolean isAlone) {
        return words(
                request.scriptKeys(lock, isAlone),
                "lock_check",
                new Words(1).add(token).done());
    }

    /** Whether this user may not touch the queues, so that locks are used without them. */
    public synchronized boolean isAlone() {
        isAlone &= context.now() < aloneUntil;
        return isAlone;
    }

    /** Whether an error is about the queue: this user may not touch it, or it is being migrated to another server. */
    public boolean isAboutQueue(Request request, ReplyError error) {
        return request.mayLeaveOutQueue()
                && (error.code().equals("NOPERM") || error.code().equals("TRYAGAIN"));
    }

    /** Remembers that this user may not touch the queues, if that is the error. */
    public synchronized void refused(ReplyError error) {
        if (error.code().equals("NOPERM")) {
            isAlone = true;
            aloneUntil = context.now() + ALONE;
        }
    }

    /** Records that the server has lost the script. */
    public synchronized void missed() {
        isLoaded = false;
    }

    private synchronized void loaded() {
        isLoaded = true;
    }

    /** argsAlone: the arguments without the queue. */
    private CompletableFuture<Object> call(
            Exchange exchange, Request request, String name, byte[][] args, byte[][] argsAlone, boolean isAlone) {
        String function = request.isMany() ? name + "_all" : name;
        if (request.mayLeaveOutQueue() && (isAlone || isAlone())) {
            return ask(exchange, request.scriptKeys(true), function, argsAlone);
        }
        return ask(exchange, request.scriptKeys(false), function, args).exceptionallyCompose(error -> {
            if (!(Exchange.cause(error) instanceof ReplyError reply) || !isAboutQueue(request, reply)) {
                return CompletableFuture.failedFuture(error);
            }
            return ask(exchange, request.scriptKeys(true), function, argsAlone).thenApply(grant -> {
                refused(reply);
                return grant;
            });
        });
    }

    private CompletableFuture<Object> ask(Exchange exchange, List<byte[]> keys, String function, byte[][] args) {
        return exchange.send(words(keys, function, args))
                .exceptionallyCompose(error -> {
                    if (!(Exchange.cause(error) instanceof ReplyError reply)
                            || !reply.code().equals("NOSCRIPT")) {
                        return CompletableFuture.failedFuture(error);
                    }
                    missed();
                    return exchange.send(words(keys, function, args));
                })
                .thenApply(reply -> {
                    loaded();
                    return reply;
                });
    }

    /**
     * A volatile policy could evict a key with an expiry. So locks have no expiry under such a policy, or if the policy
     * is unknown.
     */
    private CompletableFuture<?> askPolicy(Exchange exchange) {
        synchronized (this) {
            if (hasAsked && context.now() < askedAt + POLICY_VALID_FOR) {
                return CompletableFuture.completedFuture(null);
            }
        }
        return exchange.send(new Words(2).add("INFO").add("memory").done())
                .exceptionallyCompose(error -> Exchange.cause(error) instanceof ReplyError // this user may not ask
                        ? CompletableFuture.completedFuture("")
                        : CompletableFuture.failedFuture(error))
                .thenAccept(reply -> readPolicy(Words.text(reply)));
    }

    private synchronized void readPolicy(String info) {
        int at = info.indexOf("maxmemory_policy:");
        boolean isVolatile = at < 0 || info.startsWith("volatile", at + "maxmemory_policy:".length());
        hasAsked = true;
        askedAt = context.now();
        retention = isVolatile ? -1 : RETENTION;
    }
}
