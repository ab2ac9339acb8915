package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Ends holds whose locks stay for a while. This defers interrupts, for at most one command's time-out, and then
 * continues in the background. Thread-safe.
 */
public final class Keep {
    /** The lease of an EXTEND is counted from when the server runs it, so one that takes longer is sent again. */
    public static final long LATE_EXTEND = 250 * Clock.MILLISECOND;

    private static final int MOST_COPIES = 3;
    private static final Long DONE = 1L;

    private final Context context;
    private final Commands commands;
    private final Debts debts;
    private final Release release;

    public Keep(Context context, Commands commands, Debts debts, Release release) {
        this.context = context;
        this.commands = commands;
        this.debts = debts;
        this.release = release;
    }

    /**
     * Ends a hold whose lock stays until then, by the clock of leases, or releases it if that time has passed. Returns
     * whether the lock was held to the end of the hold. isLong: the lease already lasts until then.
     */
    public boolean keep(Hold hold, long until, boolean isLong) {
        return release.end(hold, end -> {
            if (end.wasLost() || context.now() >= until) {
                return release.atOnce(hold);
            }
            return isLong || new Kept(hold, until).extend();
        });
    }

    /** A lock that stays until then. */
    private final class Kept implements Debts.Debt {
        private final Hold hold;
        private final long until;
        /** Whether an EXTEND is still to be sent in the background. */
        private final AtomicBoolean isOwed = new AtomicBoolean();

        Kept(Hold hold, long until) {
            this.hold = hold;
            this.until = until;
        }

        /**
         * Tries for as long as a command may take. Then this continues in the background until the lease should end.
         */
        boolean extend() {
            long end = context.now() + context.timeout();
            boolean isSure = awaitIdle();
            for (int tries = 1; ; tries++) {
                try {
                    boolean isKept = DONE.equals(send(context.timeout()));
                    if (isKept && (!isSure || tries > 1)) {
                        oweLateCopy();
                    }
                    return isKept;
                } catch (ReplyError | ConnectionLost error) {
                    if (!Errors.isTransient(error)) {
                        throw Errors.typed(error, hold.request().name(), Errors.NO_WAIT);
                    }
                    if (context.now() >= end || Thread.currentThread().isInterrupted()) {
                        context.warn(text() + " is kept for its period in the background", error);
                        owe();
                        return true;
                    }
                }
                release.pause(tries);
            }
        }

        /**
         * Waits until no EXTEND is in flight, because one that the server runs later would shorten the lease. Returns
         * whether the server cannot run an earlier one any more.
         */
        private boolean awaitIdle() {
            boolean isIdle = false;
            try {
                isIdle = hold.awaitIdle(context.timeout());
            } catch (InterruptedException interrupt) {
                Thread.currentThread().interrupt();
            }
            if (!isIdle) {
                hold.whenIdle(this::owe);
            }
            return isIdle && hold.hasSettled();
        }

        private void owe() {
            if (!isOwed.getAndSet(true)) {
                debts.owe(until, this);
            }
        }

        /** For when the server cannot run an earlier EXTEND any more. */
        private void oweLateCopy() {
            long at = context.now() + Hold.LATE_COPY;
            if (at < until) {
                debts.oweLater(at, until - at, this);
            }
        }

        @Override
        public void pay() {
            isOwed.set(false);
            if (context.now() >= until) {
                return;
            }
            try {
                if (!DONE.equals(send(debts.patience()))) {
                    context.warn(text() + " expired before it could be kept for its period", null);
                }
            } catch (ReplyError | ConnectionLost error) {
                if (!Errors.isTransient(error)) {
                    context.warn(text() + " could not be kept for its period", error);
                } else if (!isOwed.getAndSet(true)) {
                    throw error; // it is tried again
                }
            }
        }

        /**
         * Sets a lease that ends then. A copy that the server runs late would lengthen it, and is followed by another.
         */
        private Object send(long timeout) {
            for (int copies = 1; ; copies++) {
                long sent = context.now();
                Object reply;
                try {
                    reply = commands.send(
                            hold, hold.request().key(), () -> commands.extendWords(hold, lease(sent)), timeout);
                } catch (ConnectionLost error) {
                    if (error.late() != null) {
                        error.late().whenComplete((late, failure) -> owe());
                    }
                    throw error;
                }
                if (!DONE.equals(reply) || context.now() <= sent + LATE_EXTEND || copies == MOST_COPIES) {
                    return reply;
                }
            }
        }

        /** Whole milliseconds, rounded up. */
        private long lease(long sent) {
            return Math.max(1, -Math.floorDiv(sent - until, Clock.MILLISECOND)) * Clock.MILLISECOND;
        }

        private String text() {
            return "the lock " + hold.request().name();
        }
    }
}
