package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;

/** Attempts and grants that are no longer wanted and could not be cancelled or released at once. Thread-safe. */
public final class Debts {
    private static final long PAUSE = 250 * Clock.MILLISECOND;

    private final Context context;
    private final Timer timer;

    public Debts(Context context, Timer timer) {
        this.context = context;
        this.timer = timer;
    }

    /** Something to cancel or release. */
    public interface Debt {
        /** Throws ReplyError or ConnectionLost. */
        void pay();
    }

    /** Tries to settle a debt in the background, until this succeeds or that time has come. */
    public void owe(long until, Debt debt) {
        context.debts().execute(() -> {
            try {
                debt.pay();
            } catch (ReplyError | ConnectionLost error) {
                if (Errors.isTransient(error) && !context.isClosed() && context.now() < until) {
                    timer.later(context.now() + PAUSE, () -> owe(until, debt));
                }
            }
        });
    }

    /** Like owe, but starts at that time, and retries for that span. */
    public void oweLater(long at, long span, Debt debt) {
        timer.later(at, () -> owe(at + span, debt));
    }

    /** How long a reply may take while no caller waits for it, in nanoseconds. */
    public long patience() {
        return Math.min(Clock.SECOND, context.timeout());
    }
}
