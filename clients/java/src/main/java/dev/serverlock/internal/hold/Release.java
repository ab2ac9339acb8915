package dev.serverlock.internal.hold;

import dev.serverlock.Hooks;
import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Call;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/** Releases locks. A release defers interrupts, for at most one command's time-out. Thread-safe. */
public final class Release {
    private static final long SHORTEST_PAUSE = 20 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 200 * Clock.MILLISECOND;

    private final Context context;
    private final Router router;
    private final Commands commands;
    private final Timer timer;
    private final Debts debts;
    private final Sessions sessions;
    private final Hooks hooks;

    public Release(
            Context context,
            Router router,
            Commands commands,
            Timer timer,
            Debts debts,
            Sessions sessions,
            Hooks hooks) {
        this.context = context;
        this.router = router;
        this.commands = commands;
        this.timer = timer;
        this.debts = debts;
        this.sessions = sessions;
        this.hooks = hooks;
    }

    /** Returns whether the lock was held to the end. */
    public boolean release(Hold hold, long delay) {
        return end(hold, end -> {
            long wait = Math.max(delay, hold.granted() + hold.request().atLeast() - context.now());
            return wait >= Clock.MILLISECOND && !end.wasLost() ? later(hold, wait) : atOnce(hold);
        });
    }

    /**
     * Ends a hold. Returns whether the lock was held to the end. settle: what to send, unless the server no longer has
     * the grant; returns whether it had.
     */
    boolean end(Hold hold, Predicate<Hold.End> settle) {
        Hold.End end = hold.end();
        if (!end.isFirst()) {
            throw new LockMisuseException(hold.request().name(), "it was released before", null);
        }
        timer.forget();
        boolean wasHeld = false;
        try {
            wasHeld = !end.isGone() && settle.test(end);
        } finally {
            sessions.drop(hold);
            wasHeld &= !end.wasLost();
            boolean inTime = wasHeld;
            context.callBack(() ->
                    hooks.released(hold.request().name(), Clock.duration(context.now() - hold.granted()), inTime));
        }
        return wasHeld;
    }

    /** Sends RELEASE until it gets a reply. After one command's time-out, the release is retried in the background. */
    boolean atOnce(Hold hold) {
        long lostAt = hold.lostAt();
        long end = Math.min(context.now() + context.timeout(), lostAt);
        boolean wasSentBefore = false;
        for (int tries = 1; ; tries++) {
            Call call = new Call(commands.releaseWords(hold));
            try {
                Object reply = reply(hold, call, end);
                if (hold.request().wasHeld(reply)) {
                    return true;
                }
                // If it was sent twice, the first copy may have released the lock.
                boolean isUnknown = wasSentBefore || call.wasResent;
                return isUnknown && Long.valueOf(0).equals(reply) && context.now() < lostAt;
            } catch (ReplyError | ConnectionLost error) {
                if (commands.fallsBack(hold, error)) {
                    continue;
                }
                if (!Errors.isTransient(error)) {
                    throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
                }
                if (context.now() >= end) {
                    owe(hold, error);
                    return context.now() < lostAt;
                }
                wasSentBefore = true;
            }
            pause(tries);
        }
    }

    /** Returns the reply, even a late one on a shared connection. */
    private Object reply(Hold hold, Call call, long end) {
        router.send(hold.request().key(), call, context.timeout());
        if (call.error == null || call.late == null) {
            return Errors.result(call);
        }
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return call.late.get(Math.max(0, end - context.now()), TimeUnit.NANOSECONDS);
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true;
                } catch (ExecutionException error) {
                    throw Errors.read(error.getCause());
                } catch (TimeoutException late) {
                    throw Errors.read(call.error, call.late);
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Releases the lock in the background. */
    public void giveUp(Hold hold) {
        if (hold.end().isFirst()) {
            timer.forget();
            sessions.drop(hold);
            debts.owe(hold.leaseEnds(), () -> settle(hold));
        }
    }

    private void owe(Hold hold, RuntimeException error) {
        context.warn("the lock " + hold.request().name() + " is released in the background", error);
        // A copy may still be in flight, but a second RELEASE is harmless.
        debts.owe(hold.leaseEnds(), () -> settle(hold));
    }

    private void settle(Hold hold) {
        try {
            router.call(hold.request().key(), commands.releaseWords(hold), debts.patience());
        } catch (ReplyError | ConnectionLost error) {
            if (!commands.fallsBack(hold, error)) {
                throw error;
            }
            router.call(hold.request().key(), commands.releaseWords(hold), debts.patience());
        }
    }

    /** Shortens the lease to the delay; the timer then releases the lock. */
    private boolean later(Hold hold, long wait) {
        boolean wasHeld;
        try {
            wasHeld = Long.valueOf(1)
                    .equals(commands.send(hold, hold.request().key(), () -> commands.extendWords(hold, wait)));
        } catch (ReplyError | ConnectionLost error) {
            if (!Errors.isTransient(error)) {
                throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
            }
            context.warn("the lock " + hold.request().name() + " is released later, or ends with its lease", error);
            wasHeld = true; // as far as the client knows
        }
        long at = context.now() + wait;
        long until = Math.max(at, hold.leaseEnds()) + Clock.SECOND;
        timer.later(at, () -> debts.owe(until, () -> settle(hold)));
        return wasHeld;
    }

    /** Sleeps before another try, unless the thread is interrupted. */
    static void pause(int tries) {
        try {
            TimeUnit.NANOSECONDS.sleep(Math.min(SHORTEST_PAUSE * tries, LONGEST_PAUSE));
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
        }
    }
}
