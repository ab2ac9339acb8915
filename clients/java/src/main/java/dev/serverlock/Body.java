package dev.serverlock;

import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.hold.Scopes;
import dev.serverlock.internal.wire.Errors;

/** Work under a lock, in one thread. A loss interrupts only the work. */
final class Body {
    private final Thread thread = Thread.currentThread();
    private boolean isOver;
    private boolean hasInterrupted;

    private Body() {}

    /** Plays the outermost body of a lock, and then ends the hold. */
    static <T, X extends Exception> T play(Scopes scopes, Held held, ServerLock.Work<T, X> work)
            throws X, InterruptedException {
        Hold hold = held.hold();
        scopes.enter(hold);
        boolean hasFailed = true;
        try {
            T result = run(held, work);
            hasFailed = false;
            return result;
        } finally {
            scopes.leave(hold);
            end(held, hasFailed);
        }
    }

    /** Plays a body of a lock that the thread already has. */
    static <T, X extends Exception> T playAgain(Held held, ServerLock.Work<T, X> work) throws X, InterruptedException {
        T result = run(held, work);
        LockLostException lost = held.hold().lost();
        if (lost != null) {
            throw new LockLostException(held.key(), Errors.reason(lost), lost);
        }
        return result;
    }

    /** Runs the work, as part of the body that the thread is in, if there is one: a loss interrupts it only once. */
    private static <T, X extends Exception> T run(Held held, ServerLock.Work<T, X> work)
            throws X, InterruptedException {
        if (held.body != null) {
            return held.body.call(held, work);
        }
        Body body = new Body();
        Runnable stop = body::stop;
        held.body = body;
        try {
            held.hold().onLost(stop);
            return body.call(held, work);
        } finally {
            body.leave();
            held.hold().forget(stop);
            held.body = null;
        }
    }

    private <T, X extends Exception> T call(Held held, ServerLock.Work<T, X> work) throws X, InterruptedException {
        try {
            return work.call(held);
        } catch (Exception error) {
            LockLostException lost = held.hold().lost();
            if (error instanceof InterruptedException && hasInterrupted() && lost != null) {
                LockLostException why = new LockLostException(held.key(), Errors.reason(lost), error);
                throw why;
            }
            throw error;
        }
    }

    /** Ends the hold. Throws if it was lost, unless the work has thrown its own error. */
    private static void end(Held held, boolean hasFailed) {
        try {
            held.leave(hasFailed);
        } catch (LockException error) {
            if (!hasFailed) {
                throw error;
            }
        }
    }

    private synchronized void stop() {
        if (!isOver) {
            hasInterrupted = true;
            thread.interrupt();
        }
    }

    private synchronized boolean hasInterrupted() {
        return hasInterrupted;
    }

    private synchronized void leave() {
        isOver = true;
        if (hasInterrupted) {
            Thread.interrupted(); // the interrupt was meant only for the work
        }
    }
}
