package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.Runs;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.once.Schedule;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * The description of a body that runs once per period, in one of the processes that ask. It holds nothing and never
 * changes, so any number of threads may use it. The methods for options return a copy, and throw
 * {@link LockArgumentException} for a bad value.
 *
 * <p>A call is for the nearest tick, which is a multiple of the period since the beginning of 1970 on the server's
 * clock. When the body ends, its lock is kept until halfway to the next tick, and is neither renewed nor released.
 */
public final class Once {
    private final Engine engine;
    private final Runs runs;
    private final Schedule schedule;

    Once(Engine engine, Runs runs, Schedule schedule) {
        this.engine = engine;
        this.runs = runs;
        this.schedule = schedule;
    }

    /**
     * The body.
     *
     * @param <X> the type of exception that it may throw
     */
    @FunctionalInterface
    public interface Task<X extends Exception> {
        /**
         * Does the work of one tick.
         *
         * @param held the tick and its lock
         * @throws X an error from the work: another process may run the tick
         */
        void run(HeldOnce held) throws X;
    }

    /**
     * A body with a result.
     *
     * @param <T> the type of the result
     * @param <X> the type of exception that it may throw
     */
    @FunctionalInterface
    public interface Work<T, X extends Exception> {
        /**
         * Does the work of one tick.
         *
         * @param held the tick and its lock
         * @return the result
         * @throws X an error from the work: another process may run the tick
         */
        T call(HeldOnce held) throws X;
    }

    /**
     * What became of a {@link #call}.
     *
     * @param outcome whether the body ran here
     * @param value what the body returned; null if it ran elsewhere
     * @param <T> the type of the value
     */
    public record Result<T>(Outcome outcome, T value) {}

    /**
     * Sets how long after its process died a tick may run again. The lease is renewed while the body runs. The default
     * is 10 seconds, or a quarter of the period if that is shorter.
     *
     * @param lease from 1 ms to half of the period
     * @return a copy with this option
     */
    public Once lease(Duration lease) {
        return with(schedule.withLease(lease));
    }

    /**
     * Sets whether a tick runs again if its process dies. The default is true. Otherwise such a tick is skipped, and
     * the body may take nine tenths of what is left until halfway to the next tick.
     *
     * @param reruns false to skip such ticks
     * @return a copy with this option
     */
    public Once rerun(boolean reruns) {
        return with(schedule.withReruns(reruns));
    }

    /**
     * Sets a label for humans. It does not affect grants. The default names this process: {@code host:pid}.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public Once owner(String owner) {
        return with(schedule.with(request -> request.withOwner(owner)));
    }

    /**
     * Sends no label.
     *
     * @return a copy with this option
     */
    public Once withoutOwner() {
        return with(schedule.with(Request::withoutOwner));
    }

    /**
     * Requires that replicas confirm the grant, as in {@link ServerLock#replicas}.
     *
     * @param count how many replicas
     * @param within how long they may take
     * @return a copy with this option
     */
    public Once replicas(int count, Duration within) {
        return with(schedule.with(request -> request.withReplicas(count, within)));
    }

    /**
     * Requires that the grant is written to disk, as in {@link ServerLock#fsync}.
     *
     * @param within how long that may take
     * @return a copy with this option
     */
    public Once fsync(Duration within) {
        return with(schedule.with(request -> request.withFsync(within)));
    }

    /**
     * Stops renewing the lease this long after the body began.
     *
     * @param maxHold the time from the grant to the last renewal
     * @return a copy with this option
     */
    public Once maxHold(Duration maxHold) {
        return with(schedule.with(request -> request.withMaxHold(maxHold)));
    }

    /**
     * Sets a callback that runs once when the lock is lost during the body, in a thread of {@link Locks}.
     *
     * @param lost the callback
     * @return a copy with this option
     */
    public Once onLost(Consumer<LockLostException> lost) {
        return with(schedule.with(request -> request.withOnLost(lost)));
    }

    private Once with(Schedule changed) {
        return new Once(engine, runs, changed);
    }

    /**
     * Runs the body, unless another process is running the current tick, or has run it. A loss interrupts the thread,
     * as in {@link ServerLock#run}. Asking for the same key within the body throws {@link LockMisuseException}.
     *
     * <p>If the body throws, another process may run the tick. Once it has returned, the tick is kept even if the
     * thread is interrupted. That takes at most a few commands' time-outs, and then continues in the background.
     *
     * @param <X> the type of exception that the body may throw
     * @param body the body
     * @return whether it ran here
     * @throws X from the body
     * @throws LockLostException if the lock was lost during the body
     * @throws LockException if the server could not be asked, or does not grant or keep the lock
     * @throws InterruptedException if the thread was interrupted for a reason other than the loss
     */
    public <X extends Exception> Outcome run(Task<X> body) throws X, InterruptedException {
        Work<Void, X> withoutResult = held -> {
            body.run(held);
            return null;
        };
        return call(withoutResult).outcome();
    }

    /**
     * Like {@link #run}, with a result.
     *
     * @param <T> the type of the result
     * @param <X> the type of exception that the body may throw
     * @param body the body
     * @return whether it ran here, and its result
     * @throws X from the body
     * @throws InterruptedException if the thread was interrupted for a reason other than the loss
     */
    public <T, X extends Exception> Result<T> call(Work<T, X> body) throws X, InterruptedException {
        Runs.Begun begun = runs.begin(schedule);
        if (begun == null) {
            return new Result<>(Outcome.ELSEWHERE, null);
        }
        HeldOnce held = new HeldOnce(engine, runs, begun);
        ServerLock.Work<T, X> work = same -> body.call(held);
        T value = Body.play(engine.scopes(), held, work);
        return new Result<>(held.recovered() ? Outcome.RECOVERED : Outcome.RAN, value);
    }
}
