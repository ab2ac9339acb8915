package dev.serverlock.internal.command;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * Locks without the module: the scripts, sent by hash. Keys, values, replies and errors are those of the commands, for
 * one key with one holder. Thread-safe.
 */
public final class Portable {
    private static final long MARGIN = 1000;
    private static final long RETENTION = 60_000;
    /** How long the eviction policy is remembered. After a failover another server may have another one. */
    private static final long POLICY_COUNTS = 60 * Clock.SECOND;

    /** Checks the lock as the scripts do, then runs one command of the user. */
    public static final String FENCED = """
            local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
            local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
            if not ends or tonumber(ends) - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
            return {redis.call(unpack(ARGV, 2))}
            """;

    /** The function library without its first line, which EVAL does not accept. */
    private static final byte[] SCRIPT = script();

    private static final String DIGEST = digest();

    private final Context context;
    private final Router router;
    private boolean isLoaded;
    private long retention = -1;
    private long askedAt;
    private boolean hasAsked;

    public Portable(Context context, Router router) {
        this.context = context;
        this.router = router;
    }

    /** One exchange with the server of a key. */
    public interface Send {
        Object send(byte[][] words) throws InterruptedException;
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

    public Object acquire(Send send, Request request, byte[] id) throws InterruptedException {
        askPolicy(send);
        String name = request.isRecovery() ? "lock_recover" : "lock_acquire";
        return call(send, request, name, request.scripted(id));
    }

    /** Releases what this ID may have been granted: the same ID gets the same token again. */
    public void cancel(Request request, byte[] id) {
        Send send = words -> router.call(request.key(), words, context.timeout());
        try {
            byte[][] same = new Words(4).add("PX").add(1).add("ID").add(id).done();
            if (call(send, request, "lock_acquire", same) instanceof Long token) {
                call(send, request, "lock_release", new Words(1).add(token).done());
            }
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible); // the router does not wait for an interrupt
        }
    }

    private synchronized byte[][] words(Request request, String name, byte[][] args) {
        Words words = new Words(args.length + 7);
        if (isLoaded) {
            words.add("EVALSHA").add(DIGEST);
        } else {
            words.add("EVAL").add(SCRIPT);
        }
        return words.add(1)
                .add(request.key())
                .add(name)
                .add(MARGIN)
                .add(retention)
                .addAll(args)
                .done();
    }

    public byte[][] extend(Request request, long token, long lease) {
        return words(
                request,
                "lock_extend",
                new Words(3).add(token).add("PX").add(Clock.milliseconds(lease)).done());
    }

    public byte[][] release(Request request, long token) {
        return words(request, "lock_release", new Words(1).add(token).done());
    }

    public byte[][] check(Request request, long token) {
        return words(request, "lock_check", new Words(1).add(token).done());
    }

    /** The server has lost the script. */
    public synchronized void missed() {
        isLoaded = false;
    }

    private synchronized void loaded() {
        isLoaded = true;
    }

    private Object call(Send send, Request request, String name, byte[][] args) throws InterruptedException {
        Object reply;
        try {
            reply = send.send(words(request, name, args));
        } catch (ReplyError refusal) {
            if (!refusal.code().equals("NOSCRIPT")) {
                throw refusal;
            }
            missed();
            reply = send.send(words(request, name, args));
        }
        loaded();
        return reply;
    }

    /** A volatile policy could evict a key with an expiry, so locks get none then, nor if the policy is unknown. */
    private void askPolicy(Send send) throws InterruptedException {
        synchronized (this) {
            if (hasAsked && context.now() < askedAt + POLICY_COUNTS) {
                return;
            }
        }
        String info = "";
        try {
            info = Words.text(send.send(new Words(2).add("INFO").add("memory").done()));
        } catch (ReplyError notAllowed) {
            // The policy stays unknown.
        }
        int at = info.indexOf("maxmemory_policy:");
        boolean isVolatile = at < 0 || info.startsWith("volatile", at + "maxmemory_policy:".length());
        synchronized (this) {
            hasAsked = true;
            askedAt = context.now();
            retention = isVolatile ? -1 : RETENTION;
        }
    }
}
