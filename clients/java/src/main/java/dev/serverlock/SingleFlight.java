package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.Flights;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * The description of a value that many callers need at the same moment, in any number of processes. One of them
 * computes it, and all that wait get the same bytes. It holds nothing and never changes, so any number of threads may
 * use it. The methods for options return a copy, and throw {@link LockArgumentException} for a bad value.
 *
 * <p>The threads that ask one {@link Locks} for the same key share one attempt. {@code call} returns no future.
 */
public final class SingleFlight {
    private static final Duration USUAL_WAIT = Duration.ofSeconds(60);

    private final Engine engine;
    private final Request request;

    private SingleFlight(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
    }

    static SingleFlight of(Engine engine, Request request) {
        return new SingleFlight(engine, request.withWaiting(USUAL_WAIT).withResult());
    }

    /**
     * Computes the value.
     *
     * @param <X> the type of exception that it may throw
     */
    @FunctionalInterface
    public interface Work<X extends Exception> {
        /**
         * Computes the value.
         *
         * @param held the lock
         * @return the value, which must not be null
         * @throws X an error from the work: the next caller computes
         */
        byte[] call(Held held) throws X;
    }

    /**
     * Sets how long a caller waits for the value, or for its turn to compute it. The default is 60 seconds.
     *
     * @param wait at least 1 ms; {@link Locks#FOREVER} for no limit
     * @return a copy with this option
     */
    public SingleFlight waiting(Duration wait) {
        request.checked("wait", wait, Clock.MILLISECOND, Clock.NEVER);
        return with(request.withWaiting(wait));
    }

    /**
     * Sets a label for humans. It does not affect grants. The default names this process: {@code host:pid}.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public SingleFlight owner(String owner) {
        return with(request.withOwner(owner));
    }

    /**
     * Sends no label.
     *
     * @return a copy with this option
     */
    public SingleFlight withoutOwner() {
        return with(request.withoutOwner());
    }

    /**
     * Stops renewing the lease this long after the grant.
     *
     * @param maxHold the time from the grant to the last renewal
     * @return a copy with this option
     */
    public SingleFlight maxHold(Duration maxHold) {
        return with(request.withMaxHold(maxHold));
    }

    /**
     * Sets a callback that runs once when the lock is lost while the value is computed, in a thread of {@link Locks}.
     *
     * @param lost the callback
     * @return a copy with this option
     */
    public SingleFlight onLost(Consumer<LockLostException> lost) {
        return with(request.withOnLost(lost));
    }

    private SingleFlight with(Request changed) {
        return new SingleFlight(engine, changed);
    }

    /**
     * Returns the value: the one that another caller computes while this one waits, or what {@code compute} returns. A
     * loss of the lock interrupts the thread that computes, as in {@link ServerLock#run}. Once {@code compute} has
     * returned, the caller gets its value whatever becomes of the lock. Asking for the same key within {@code compute}
     * throws {@link LockMisuseException}.
     *
     * <p>If {@code compute} throws, this caller gets the exception, and the next one computes. A value that is longer
     * than the server's {@code lock.result-max} (64 KiB by default) is not passed on, so that each process computes its
     * own.
     *
     * @param <X> the type of exception that {@code compute} may throw
     * @param compute computes the value
     * @return the value
     * @throws X from {@code compute}
     * @throws LockTimeoutException if the wait ended before there was a value and before it was this caller's turn
     * @throws LockArgumentException if {@code compute} returns null
     * @throws LockLostException if the lock was lost, and {@code compute} did not return a value
     * @throws LockException if the server could not be asked, or does not grant the lock
     * @throws InterruptedException if the thread was interrupted for a reason other than the loss
     */
    public <X extends Exception> byte[] call(Work<X> compute) throws X, InterruptedException {
        engine.again(request);
        Flights.Caller caller = engine.flights().join(request);
        try {
            byte[] shared = caller.await();
            return shared == null ? lead(caller, compute) : shared;
        } finally {
            caller.leave();
        }
    }

    private <X extends Exception> byte[] lead(Flights.Caller caller, Work<X> compute) throws X, InterruptedException {
        Engine.Got got;
        try {
            got = engine.acquireOrResult(caller.request());
        } catch (LockTimeoutException only) { // the others may have time left
            throw only;
        } catch (LockException error) {
            caller.fail(error);
            throw error;
        }
        if (got.hold() == null) {
            caller.land(got.result());
            return got.result();
        }
        HeldFlight held = new HeldFlight(engine, got.hold());
        ServerLock.Work<byte[], X> work = same -> {
            byte[] value = compute.call(held);
            if (value == null) {
                throw new LockArgumentException(held.key(), "compute returned null, not bytes", null);
            }
            held.computed(value);
            caller.land(value);
            return value;
        };
        return Body.play(engine.scopes(), held, work);
    }
}
