package dev.serverlock.internal.hold;

import dev.serverlock.internal.command.Module;
import dev.serverlock.internal.command.Portable;
import dev.serverlock.internal.command.Stored;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * The commands for a held lock: LOCK.* with the module, and the scripts without it. The key's value is the same for
 * both.
 */
public final class Commands {
    private static final String FENCED = """
            for i = 1, #KEYS - 1 do
                if redis.call('LOCK.CHECK', KEYS[i], ARGV[1]) == 0 then return {'LOCK.LOST'} end
            end
            return {redis.call(unpack(ARGV, 2))}
            """;

    /** How often a command is sent in another form. */
    static final int MOST_TRIES = 3;

    private final Context context;
    private final Router router;
    private final Module module;
    private final Portable portable;
    private final Timer timer;

    public Commands(Context context, Router router, Module module, Portable portable, Timer timer) {
        this.context = context;
        this.router = router;
        this.module = module;
        this.portable = portable;
        this.timer = timer;
    }

    /** Sets a new lease, in nanoseconds from now. Throws if the lock is not held. */
    public void extend(Hold hold, long lease) {
        hold.check();
        long sent = context.now();
        boolean isDone = false;
        CompletableFuture<Object> late = null;
        if (!hold.extending(sent, lease)) {
            hold.check();
        }
        try {
            isDone = isDone(send(hold, hold.request().key(), () -> extendWords(hold, lease)));
        } catch (ReplyError | ConnectionLost error) {
            late = error instanceof ConnectionLost lost ? lost.late() : null;
            throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
        } finally {
            if (late == null) {
                hold.extended(sent, lease, isDone);
            } else {
                late.whenComplete((reply, error) -> hold.extended(sent, lease, isDone(reply)));
            }
            timer.add(hold);
        }
        if (!isDone) {
            hold.taken();
        }
        hold.check();
    }

    private static boolean isDone(Object reply) {
        return Long.valueOf(1).equals(reply);
    }

    /** Returns how long the lock is certain to be held, in nanoseconds. Throws if it is not held on the server. */
    public long verify(Hold hold) {
        hold.check();
        long least = Clock.NEVER;
        for (int i = 0; i < hold.request().keys().size(); i++) {
            int lock = i;
            Object reply = ask(hold, hold.request().keys().get(i), () -> checkWords(hold, lock));
            least = Math.min(least, reply instanceof Long left ? left * Clock.MILLISECOND : 0);
        }
        if (least <= 0) {
            hold.taken();
        }
        hold.check();
        return Math.min(least, hold.left());
    }

    /** Runs a user's command if the lock is held at that moment, and returns its reply. Throws if it is not. */
    public Object fenced(Hold hold, byte[][] command) {
        hold.check();
        Object reply = ask(hold, hold.request().key(), () -> fencedWords(hold, command));
        Object first = reply instanceof List<?> list && !list.isEmpty() ? list.get(0) : null;
        if (first instanceof byte[] && Words.text(first).equals("LOCK.LOST")) {
            hold.taken();
            hold.check();
        }
        return first;
    }

    byte[][] extendWords(Hold hold, long lease) {
        return hold.isPortable()
                ? portable.extend(hold.request(), hold.token(), lease, hold.leavesOutQueue(portable.isAlone()))
                : hold.request().extend(hold.token(), lease);
    }

    byte[][] releaseWords(Hold hold) {
        if (hold.isPortable()) {
            return portable.release(hold.request(), hold.token(), hold.leavesOutQueue(portable.isAlone()));
        }
        byte[] result = hold.result();
        return result == null
                ? hold.request().release(hold.token())
                : hold.request().release(hold.token(), result);
    }

    /** Makes the release of a hold pass on its result. Without the module, stores it for those that wait. */
    public void passOn(Hold hold, byte[] result) {
        hold.passOn(result);
        byte[][] words = hold.isPortable() && hold.whyNotHeld() == null
                ? Stored.set(hold.request(), hold.token(), result)
                : null;
        if (words == null) {
            return;
        }
        try {
            router.call(hold.request().key(), words, context.timeout());
        } catch (ReplyError | ConnectionLost error) {
            context.warn("each caller computes " + hold.request().name() + ": its result was not stored", error);
        }
    }

    private byte[][] checkWords(Hold hold, int lock) {
        return hold.isPortable()
                ? portable.check(hold.request(), lock, hold.token(), hold.leavesOutQueue(portable.isAlone()))
                : new Words(3)
                        .add("LOCK.CHECK")
                        .add(hold.request().keys().get(lock))
                        .add(hold.token())
                        .done();
    }

    private byte[][] fencedWords(Hold hold, byte[][] command) {
        hold.leavesOutQueue(true); // so that an error is not about the queue
        List<byte[]> keys = hold.request().keys();
        Words words = new Words(command.length + keys.size() + 5)
                .add("EVAL")
                .add(hold.isPortable() ? Portable.FENCED : FENCED)
                .add(keys.size() + 1);
        keys.forEach(words::add);
        return words.add(command[1]).add(hold.token()).addAll(command).done();
    }

    /** Like send, but throws the error that users get. */
    private Object ask(Hold hold, byte[] key, Supplier<byte[][]> words) {
        try {
            return send(hold, key, words);
        } catch (ReplyError | ConnectionLost error) {
            throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
        }
    }

    /** Sends a command, and resends it in another form if that may work. Throws ReplyError or ConnectionLost. */
    Object send(Hold hold, byte[] key, Supplier<byte[][]> words) {
        return send(hold, key, words, context.timeout());
    }

    /** timeout: for one reply, in nanoseconds. */
    Object send(Hold hold, byte[] key, Supplier<byte[][]> words, long timeout) {
        for (int tries = 0; ; tries++) {
            try {
                return router.call(key, words.get(), timeout);
            } catch (ReplyError | ConnectionLost error) {
                if (tries == MOST_TRIES - 1 || !fallsBack(hold, error)) {
                    throw error;
                }
            }
        }
    }

    /** Like send, without a thread that waits. */
    CompletableFuture<Object> sendAsync(Hold hold, byte[] key, Supplier<byte[][]> words, int tries) {
        return router.callAsync(key, words.get(), context.timeout(), context.debts())
                .exceptionallyCompose(failure -> {
                    boolean isAgain = tries > 1
                            && Exchange.cause(failure) instanceof RuntimeException error
                            && fallsBack(hold, error);
                    return isAgain ? sendAsync(hold, key, words, tries - 1) : CompletableFuture.failedFuture(failure);
                });
    }

    /**
     * Returns whether to resend the command: the module or the script is gone, or the command can leave out the queue
     * or the result.
     */
    boolean fallsBack(Hold hold, RuntimeException error) {
        if (!(error instanceof ReplyError reply)) {
            return false;
        }
        if (reply.code().equals("NOSCRIPT") && hold.isPortable()) {
            portable.missed();
            return true;
        }
        if (hold.isPortable() && portable.isAboutQueue(hold.request(), reply) && hold.leaveOutQueue()) {
            portable.refused(reply);
            return true;
        }
        if (hold.result() != null && reply.getMessage().startsWith("ERR result is longer")) {
            hold.passOn(null); // each caller computes its own
            return true;
        }
        return reply.isUnknownCommand()
                && hold.request().needsModule() == null
                && module.mayUseScripts()
                && hold.becomePortable();
    }
}
