package dev.serverlock;

import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.hold.Scopes;

/** Work under a lock, in one thread. A loss interrupts only the work. */
final class Body {
    private final Thread thread = Thread.currentThread();
    private boolean isOver;
    private boolean hasInterrupted;

    private Body() {}

    static <T, X extends Exception> T play(Scopes scopes, Held held, ServerLock.Work<T, X> work)
            throws X, InterruptedException {
        Body body = new Body();
        Hold hold = held.hold();
        scopes.enter(hold);
        boolean hasFailed = true;
        try {
            hold.onLost(body::stop);
            T result = work.call(held);
            hasFailed = false;
            return result;
        } catch (Exception error) {
            LockLostException lost = hold.lost();
            if (error instanceof InterruptedException && body.hasInterrupted() && lost != null) {
                LockLostException why = new LockLostException(held.key(), Hold.reason(lost), error);
                throw why;
            }
            throw error;
        } finally {
            body.leave();
            scopes.leave(hold);
            end(held, hasFailed);
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
