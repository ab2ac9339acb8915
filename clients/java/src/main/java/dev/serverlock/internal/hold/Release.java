package dev.serverlock.internal.hold;

import dev.serverlock.Hooks;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Call;
import java.util.concurrent.CompletableFuture;
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
            long wait = wait(hold, delay);
            return wait >= Clock.MILLISECOND && !end.wasLost() ? later(hold, wait) : atOnce(hold);
        });
    }

    /** Like release, without a thread that waits. Completing the result changes nothing. */
    public CompletableFuture<Boolean> releaseAsync(Hold hold, long delay) {
        CompletableFuture<Boolean> released = new CompletableFuture<>();
        Hold.End end = hold.end();
        if (!end.isFirst()) {
            released.completeExceptionally(releasedBefore(hold));
            return released;
        }
        timer.forget();
        CompletableFuture<Boolean> settled;
        long wait = wait(hold, delay);
        if (end.isGone()) {
            settled = CompletableFuture.completedFuture(false);
        } else if (wait >= Clock.MILLISECOND && !end.wasLost()) {
            settled = laterAsync(hold, wait);
        } else {
            settled = new CompletableFuture<>();
            context.async().execute(() -> sendAsync(new Tries(hold), settled));
        }
        settled.whenComplete((wasHeld, failure) -> context.complete(() -> {
            boolean inTime = failure == null && wasHeld && !end.wasLost();
            ended(hold, inTime);
            if (failure == null) {
                released.complete(inTime);
            } else {
                released.completeExceptionally(Exchange.cause(failure));
            }
        }));
        return released;
    }

    /** How long others still cannot get the lock, in nanoseconds. */
    private long wait(Hold hold, long delay) {
        return Math.max(delay, hold.granted() + hold.request().atLeast() - context.now());
    }

    private static LockMisuseException releasedBefore(Hold hold) {
        return new LockMisuseException(hold.request().name(), "it was released before", null);
    }

    /**
     * Ends a hold. Returns whether the lock was held to the end. settle: what to send, unless the server no longer has
     * the grant; returns whether it had.
     */
    boolean end(Hold hold, Predicate<Hold.End> settle) {
        Hold.End end = hold.end();
        if (!end.isFirst()) {
            throw releasedBefore(hold);
        }
        timer.forget();
        boolean wasHeld = false;
        try {
            wasHeld = !end.isGone() && settle.test(end);
        } finally {
            wasHeld &= !end.wasLost();
            ended(hold, wasHeld);
        }
        return wasHeld;
    }

    private void ended(Hold hold, boolean inTime) {
        sessions.drop(hold);
        LockLostException lost = hold.lost();
        if (lost == null && !inTime) {
            lost = Errors.releasedLate(hold.request().name(), null);
        }
        hold.over(lost == null ? Hooks.End.RELEASED : Hooks.End.LOST, lost);
        context.callBack(
                () -> hooks.released(hold.request().name(), Clock.duration(context.now() - hold.granted()), inTime));
    }

    /** The state of one release, and its decision after each reply. */
    private final class Tries {
        final Hold hold;
        final long lostAt;
        final long end;
        boolean wasSentBefore;
        int count = 1;

        Tries(Hold hold) {
            this.hold = hold;
            lostAt = hold.lostAt();
            end = Math.min(context.now() + context.timeout(), lostAt);
        }

        /** Whether the lock was held to the end. If it was sent twice, the first copy may have released the lock. */
        boolean wasHeld(Object reply, boolean wasResent) {
            boolean isUnknown = wasSentBefore || wasResent;
            return hold.request().wasHeld(reply)
                    || isUnknown && Long.valueOf(0).equals(reply) && context.now() < lostAt;
        }

        /** Returns whether to send another copy. Otherwise the release goes on in the background. */
        boolean goesOn(RuntimeException error) {
            if (!Errors.isTransient(error)) {
                throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
            }
            wasSentBefore = true;
            if (context.now() < end) {
                return true;
            }
            owe(hold, error);
            return false;
        }

        boolean mayBeHeld() {
            return context.now() < lostAt;
        }
    }

    /** Sends RELEASE until it gets a reply. After one command's time-out, the release is retried in the background. */
    boolean atOnce(Hold hold) {
        Tries tries = new Tries(hold);
        while (true) {
            Call call = new Call(commands.releaseWords(hold));
            try {
                return tries.wasHeld(reply(hold, call, tries.end), call.wasResent);
            } catch (ReplyError | ConnectionLost error) {
                if (commands.fallsBack(hold, error)) {
                    continue;
                }
                if (!tries.goesOn(error)) {
                    return tries.mayBeHeld();
                }
            }
            pause(tries.count++);
        }
    }

    /** Like atOnce, without a thread that waits. */
    private void sendAsync(Tries tries, CompletableFuture<Boolean> settled) {
        Hold hold = tries.hold;
        Call call = new Call(commands.releaseWords(hold));
        router.sendAsync(hold.request().key(), call, context.timeout(), context.debts())
                .whenCompleteAsync(
                        (sent, failure) -> {
                            try {
                                settle(tries, call, failure, settled);
                            } catch (RuntimeException error) {
                                settled.completeExceptionally(error);
                            }
                        },
                        context.async());
    }

    private void settle(Tries tries, Call call, Throwable failure, CompletableFuture<Boolean> settled) {
        try {
            if (failure != null) {
                throw Errors.read(Exchange.cause(failure));
            }
            settled.complete(tries.wasHeld(Errors.result(call), call.wasResent));
        } catch (ReplyError | ConnectionLost error) {
            if (commands.fallsBack(tries.hold, error)) {
                sendAsync(tries, settled);
            } else if (tries.goesOn(error)) {
                context.completeAfter(new CompletableFuture<>(), span(tries.count++))
                        .thenRunAsync(() -> sendAsync(tries, settled), context.async());
            } else {
                settled.complete(tries.mayBeHeld());
            }
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

    /** Releases a lock that the application has not got, so that no hook is called. */
    public void releaseUnseen(Hold hold) {
        if (hold.end().isFirst()) {
            try {
                atOnce(hold);
            } catch (LockException error) {
                context.warn("the lock " + hold.request().name() + " ends with its lease", error);
            }
        }
    }

    /** Releases the lock in the background. */
    public void giveUp(Hold hold) {
        if (hold.end().isFirst()) {
            timer.forget();
            sessions.drop(hold);
            hold.over(Hooks.End.RELEASED, null);
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
        Object reply = null;
        RuntimeException failure = null;
        try {
            reply = commands.send(hold, hold.request().key(), () -> commands.extendWords(hold, wait));
        } catch (ReplyError | ConnectionLost error) {
            failure = error;
        }
        return owesLater(hold, wait, reply, failure);
    }

    /** Like later, without a thread that waits. */
    private CompletableFuture<Boolean> laterAsync(Hold hold, long wait) {
        return commands.sendAsync(
                        hold, hold.request().key(), () -> commands.extendWords(hold, wait), Commands.MOST_TRIES)
                .handle((reply, error) ->
                        owesLater(hold, wait, reply, error == null ? null : Errors.read(Exchange.cause(error))));
    }

    /** Releases the lock after the delay. Returns whether it was held until now, as far as the client knows. */
    private boolean owesLater(Hold hold, long wait, Object reply, RuntimeException failure) {
        if (failure != null && !Errors.isTransient(failure)) {
            throw Errors.typed(failure, hold.request().name(), Errors.NO_WAIT);
        }
        if (failure != null) {
            context.warn("the lock " + hold.request().name() + " is released later, or ends with its lease", failure);
        }
        long at = context.now() + wait;
        long until = Math.max(at, hold.leaseEnds()) + Clock.SECOND;
        timer.later(at, () -> debts.owe(until, () -> settle(hold)));
        return failure != null || Long.valueOf(1).equals(reply);
    }

    /** Waits before another try, unless the thread is interrupted. */
    void pause(int tries) {
        try {
            context.await(new CompletableFuture<>(), span(tries));
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
        }
    }

    private static long span(int tries) {
        return Math.min(SHORTEST_PAUSE * tries, LONGEST_PAUSE);
    }
}
