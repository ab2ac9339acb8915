package dev.serverlock.suite;

import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.ServerLock;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** How the driver acquires and releases locks: with calls that block, or with futures. */
interface Calls {
    Held acquire(ServerLock lock) throws Exception;

    boolean release(Held held) throws Exception;

    <X extends Exception> void run(ServerLock lock, ServerLock.Task<X> work) throws Exception;

    Calls BLOCKING = new Calls() {
        @Override
        public Held acquire(ServerLock lock) throws InterruptedException {
            return lock.acquire();
        }

        @Override
        public boolean release(Held held) {
            return held.release();
        }

        @Override
        public <X extends Exception> void run(ServerLock lock, ServerLock.Task<X> work) throws Exception {
            lock.run(work);
        }
    };

    /** An interrupt cancels the future of an acquire. */
    Calls FUTURES = new Calls() {
        @Override
        public Held acquire(ServerLock lock) throws Exception {
            CompletableFuture<Held> pending = lock.acquireAsync();
            try {
                return pending.get();
            } catch (InterruptedException interrupt) {
                if (!pending.cancel(true)) {
                    pending.thenAccept(Held::releaseAsync); // it was granted at that moment
                }
                throw interrupt;
            } catch (ExecutionException error) {
                throw (Exception) error.getCause();
            }
        }

        @Override
        public boolean release(Held held) throws Exception {
            CompletableFuture<Boolean> released = held.releaseAsync();
            boolean wasInterrupted = false;
            try {
                while (true) {
                    try {
                        return released.get();
                    } catch (InterruptedException interrupt) {
                        wasInterrupted = true;
                    }
                }
            } catch (ExecutionException error) {
                throw (Exception) error.getCause();
            } finally {
                if (wasInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public <X extends Exception> void run(ServerLock lock, ServerLock.Task<X> work) throws Exception {
            Held held = acquire(lock);
            boolean wasHeld;
            try {
                work.run(held);
            } catch (Exception failed) {
                end(held);
                throw failed;
            }
            wasHeld = end(held);
            if (!wasHeld) {
                throw new LockLostException(held.key(), "lost: it was not held to the end", null);
            }
        }

        private boolean end(Held held) throws Exception {
            try {
                return release(held);
            } catch (LockMisuseException releasedBefore) {
                return true;
            }
        }
    };
}
