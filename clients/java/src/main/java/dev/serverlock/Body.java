package dev.serverlock;

/** Work under a lock, in one thread, which a loss interrupts. The interrupt reaches only the work. */
final class Body {
    private final Thread thread = Thread.currentThread();
    private boolean isOver;
    private boolean hasInterrupted;

    private Body() {}

    static <T, X extends Exception> T play(Held held, ServerLock.Work<T, X> work) throws X, InterruptedException {
        Body body = new Body();
        Scopes.enter(held.hold);
        boolean hasFailed = true;
        try {
            held.hold.onLost(body::stop);
            T result = work.call(held);
            hasFailed = false;
            return result;
        } catch (Exception error) {
            LockLostException lost = held.hold.lost();
            if (error instanceof InterruptedException && body.hasInterrupted() && lost != null) {
                LockLostException told = new LockLostException(held.key(), Hold.reason(lost), error);
                throw told;
            }
            throw error;
        } finally {
            body.leave();
            Scopes.leave(held.hold);
            end(held, hasFailed);
        }
    }

    /** Releases the lock. Throws for a loss, unless the work has thrown an error of its own. */
    private static void end(Held held, boolean hasFailed) {
        try {
            held.close();
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
            Thread.interrupted(); // it was meant for the work
        }
    }
}
