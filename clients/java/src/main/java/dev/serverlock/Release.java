package dev.serverlock;

import dev.serverlock.spi.Call;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Releases locks. Interrupts are deferred until that is done, which takes at most the time-out of one command. */
final class Release {
    private static final long SHORTEST_PAUSE = 20 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 200 * Clock.MILLISECOND;

    private final Engine engine;

    Release(Engine engine) {
        this.engine = engine;
    }

    /** Tells whether the lock was held to the end. */
    boolean release(Hold hold, long delay) {
        Hold.End end = hold.end();
        if (!end.isFirst()) {
            throw new LockMisuseException(hold.request.name, "it was released before", null);
        }
        engine.timer.forget();
        boolean wasHeld = false;
        try {
            if (!end.isGone()) {
                long wait = Math.max(delay, hold.granted + hold.request.atLeast - engine.clock.now());
                wasHeld = wait >= Clock.MILLISECOND && !end.wasLost() ? later(hold, wait) : atOnce(hold);
            }
        } finally {
            engine.endSession(hold);
            wasHeld &= !end.wasLost();
            boolean inTime = wasHeld;
            engine.callBack(() -> engine.hooks.released(
                    hold.request.name, Clock.duration(engine.clock.now() - hold.granted), inTime));
        }
        return wasHeld;
    }

    private byte[][] words(Hold hold) {
        return hold.isPortable() ? engine.portable.release(hold.request, hold.token) : hold.request.release(hold.token);
    }

    /**
     * Sends it until it gets a reply, for at most the time-out of one command; then in the background, until the lease
     * ends.
     */
    private boolean atOnce(Hold hold) {
        long lostAt = hold.lostAt();
        long end = Math.min(engine.clock.now() + engine.timeout, lostAt);
        boolean wasSentBefore = false;
        for (int tries = 1; ; tries++) {
            Call call = new Call(words(hold));
            try {
                Object reply = answer(hold, call, end);
                if (hold.request.wasHeld(reply)) {
                    return true;
                }
                // If it was sent twice, the first copy may have released the lock.
                boolean isUnknown = wasSentBefore || call.wasResent;
                return isUnknown && Long.valueOf(0).equals(reply) && engine.clock.now() < lostAt;
            } catch (ReplyError | ConnectionLost error) {
                if (engine.missed(hold, error)) {
                    continue;
                }
                if (!Errors.mayPass(error)) {
                    throw Errors.typed(error, hold.request.name, Errors.NO_WAIT);
                }
                if (engine.clock.now() >= end) {
                    owe(hold, error);
                    return engine.clock.now() < lostAt;
                }
                wasSentBefore = true;
            }
            pause(Math.min(SHORTEST_PAUSE * tries, LONGEST_PAUSE));
        }
    }

    /** The reply, even a late one on a shared connection. */
    private Object answer(Hold hold, Call call, long end) {
        engine.router.send(hold.request.key(), call, engine.timeout);
        if (call.error == null || call.late == null) {
            return Errors.result(call);
        }
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return call.late.get(Math.max(0, end - engine.clock.now()), TimeUnit.NANOSECONDS);
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

    private void owe(Hold hold, RuntimeException error) {
        engine.warn("the lock " + hold.request.name + " is released in the background", error);
        // Even while a copy may be on its way: a second RELEASE does no harm.
        engine.timer.owe(hold.leaseEnds(), () -> settle(hold));
    }

    private void settle(Hold hold) {
        try {
            engine.router.call(hold.request.key(), words(hold), engine.patience());
        } catch (ReplyError | ConnectionLost error) {
            engine.missed(hold, error);
            throw error;
        }
    }

    /** Shortens the lease to what is left of atLeast; the timer releases the lock at its end. */
    private boolean later(Hold hold, long wait) {
        boolean wasHeld;
        try {
            wasHeld =
                    Long.valueOf(1).equals(engine.send(hold, hold.request.key(), () -> engine.extendWords(hold, wait)));
        } catch (ReplyError | ConnectionLost error) {
            if (!Errors.mayPass(error)) {
                throw Errors.typed(error, hold.request.name, Errors.NO_WAIT);
            }
            engine.warn("the lock " + hold.request.name + " is released later, or ends with its lease", error);
            wasHeld = true; // as far as anybody knows
        }
        long at = engine.clock.now() + wait;
        long until = Math.max(at, hold.leaseEnds()) + Clock.SECOND;
        engine.timer.later(at, () -> engine.timer.owe(until, () -> settle(hold)));
        return wasHeld;
    }

    private static void pause(long span) {
        try {
            TimeUnit.NANOSECONDS.sleep(span);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
        }
    }
}
