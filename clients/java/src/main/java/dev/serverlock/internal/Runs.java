package dev.serverlock.internal;

import dev.serverlock.LockRefusedException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.hold.Keep;
import dev.serverlock.internal.once.Estimate;
import dev.serverlock.internal.once.Run;
import dev.serverlock.internal.once.Schedule;
import dev.serverlock.internal.once.ServerClock;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;

/**
 * Begins and ends the runs of ticks. The lock itself records that a tick has run: it is kept until the tick's window
 * ends. Thread-safe.
 */
public final class Runs {
    /**
     * A long lease that ends earlier than it should by more than this, or later by more than MOST_LATE, is corrected.
     */
    private static final long MOST_EARLY = 2 * Clock.MILLISECOND;

    private static final long MOST_LATE = 100 * Clock.MILLISECOND;
    private static final int MOST_CORRECTIONS = 3;
    /** After this time, two clocks may have drifted so far apart that the server's is read again when a body ends. */
    private static final long DRIFTS = 600 * Clock.SECOND;

    private final Engine engine;
    private final Context context;
    private final ServerClock clock;

    public Runs(Engine engine) {
        this.engine = engine;
        context = engine.context();
        clock = engine.serverClock();
    }

    /** The hold and the tick of a body that begins. */
    public record Begun(Hold hold, Run run) {}

    /** Begins to run the current tick. Returns null if another process is running it, or has run it. */
    public Begun begin(Schedule schedule) throws InterruptedException {
        Request request = schedule.request();
        engine.again(request);
        Estimate estimate;
        try {
            estimate = clock.read(request);
        } catch (ReplyError | ConnectionLost error) {
            throw Errors.typed(error, request.name(), Errors.NO_WAIT);
        }
        if (!schedule.reruns()) {
            request = schedule.untilWindowEnds(estimate, clock.margin(), context.now());
        }
        Hold hold;
        try {
            hold = engine.acquire(request);
        } catch (LockTimeoutException unavailable) {
            throw unavailable;
        } catch (LockRefusedException elsewhere) {
            return null;
        }
        boolean mayBegin = false;
        try {
            Run run = schedule.run(hold, estimate, margin(hold));
            if (run.isLong()) {
                correct(hold, run);
            }
            if (Thread.interrupted()) {
                throw new InterruptedException("the call for " + request.name() + " was interrupted");
            }
            mayBegin = true;
            return new Begun(hold, run);
        } finally {
            if (!mayBegin) {
                engine.giveUp(hold);
            }
        }
    }

    private long margin(Hold hold) throws InterruptedException {
        return hold.isPortable() ? ServerClock.USUAL_MARGIN : clock.readMargin(() -> engine.inspect(hold.request()));
    }

    /**
     * Sets the end of a long lease again if it is off, because of the tick or the margin, or because the server may
     * have counted it from too late a moment.
     */
    private void correct(Hold hold, Run run) {
        long took = hold.granted() - hold.requested();
        for (int sent = 0; sent < MOST_CORRECTIONS; sent++) {
            long late = hold.leaseEnds() - run.leaseEnds();
            if (late >= -MOST_EARLY && late <= MOST_LATE && took <= Keep.LATE_EXTEND) {
                return;
            }
            long now = context.now();
            engine.commands().extend(hold, Math.max(Clock.MILLISECOND, run.leaseEnds() - now));
            took = context.now() - now;
        }
    }

    /**
     * Ends the hold of a body that succeeded: nobody else will run its tick. Returns whether it was held to the end.
     */
    public boolean finish(Hold hold, Run run) {
        boolean needsTime = !run.isLong() && run.estimate().isOlderThan(DRIFTS, context.now());
        Run last = needsTime && hold.whyNotHeld() == null ? withTime(hold, run) : run;
        return engine.keep(hold, last.leaseEnds(), run.isLong());
    }

    /** The run with a newer estimate, or the same run if there is none, or the caller is interrupted. */
    private Run withTime(Hold hold, Run run) {
        try {
            return run.with(clock.read(hold.request()));
        } catch (ReplyError | ConnectionLost error) {
            return run;
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            return run;
        }
    }
}
