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
import java.util.List;

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
    private final Router router;
    private boolean isLoaded;
    private long retention = -1;
    private long askedAt;
    private boolean hasAsked;
    private long aloneUntil;
    private boolean isAlone;

    public Portable(Context context, Router router) {
        this.context = context;
        this.router = router;
    }

    /** One exchange with a key's server. */
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

    /** channel: null to ask without waiting. isAlone: without the queue, if it may be left out. */
    public Object acquire(Send send, Request request, byte[] id, long wait, String channel, boolean isAlone)
            throws InterruptedException {
        askPolicy(send);
        String name = request.isRecovery() ? "lock_recover" : "lock_acquire";
        byte[][] args = request.scripted(id, channel == null ? 0 : wait, channel);
        return call(send, request, name, args, request.scripted(id, 0, null), isAlone);
    }

    public Object info(Send send, Request request) throws InterruptedException {
        return call(send, request, "lock_info", NO_ARGS, NO_ARGS, false);
    }

    /** Releases what this ID may have been granted, and ends its wait. */
    public void cancel(Request request, byte[] id, String channel) {
        Send send = words -> router.call(request.key(), words, context.timeout());
        try {
            if (request.hasQueue() && !isAlone() && cancelInQueue(send, request, id, channel)) {
                return;
            }
            // The same ID gets the same token again.
            byte[][] same = new Words(6)
                    .add("PX")
                    .add(1)
                    .add("ID")
                    .add(id)
                    .addAll(request.share())
                    .done();
            if (call(send, request, "lock_acquire", same, same, false) instanceof Long token) {
                byte[][] args = new Words(1).add(token).done();
                call(send, request, "lock_release", args, args, false);
            }
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible); // the router does not wait for an interrupt
        }
    }

    /** Returns whether this user may touch the queue. */
    private boolean cancelInQueue(Send send, Request request, byte[] id, String channel) throws InterruptedException {
        byte[][] args = new Words(6)
                .add("ID")
                .add(id)
                .add("NOTIFY")
                .add(channel)
                .addAll(request.share())
                .done();
        try {
            ask(send, request.scriptKeys(false), "lock_cancel", args);
            return true;
        } catch (ReplyError refusal) {
            if (!refusal.code().equals("NOPERM")) {
                throw refusal;
            }
            return false;
        }
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
    private Object call(Send send, Request request, String name, byte[][] args, byte[][] argsAlone, boolean isAlone)
            throws InterruptedException {
        String function = request.isMany() ? name + "_all" : name;
        if (request.mayLeaveOutQueue() && (isAlone || isAlone())) {
            return ask(send, request.scriptKeys(true), function, argsAlone);
        }
        try {
            return ask(send, request.scriptKeys(false), function, args);
        } catch (ReplyError error) {
            if (!isAboutQueue(request, error)) {
                throw error;
            }
            Object reply = ask(send, request.scriptKeys(true), function, argsAlone);
            refused(error);
            return reply;
        }
    }

    private Object ask(Send send, List<byte[]> keys, String function, byte[][] args) throws InterruptedException {
        Object reply;
        try {
            reply = send.send(words(keys, function, args));
        } catch (ReplyError refusal) {
            if (!refusal.code().equals("NOSCRIPT")) {
                throw refusal;
            }
            missed();
            reply = send.send(words(keys, function, args));
        }
        loaded();
        return reply;
    }

    /**
     * A volatile policy could evict a key with an expiry. So locks have no expiry under such a policy, or if the policy
     * is unknown.
     */
    private void askPolicy(Send send) throws InterruptedException {
        synchronized (this) {
            if (hasAsked && context.now() < askedAt + POLICY_VALID_FOR) {
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
