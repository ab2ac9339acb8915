package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.command.Request;
import java.time.Duration;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;

/**
 * The description of a lock: it holds nothing, never changes, and any number of threads may use it. Each acquisition
 * returns a {@link Held} of its own. The methods for options return a copy, and throw {@link LockArgumentException} for
 * a bad value.
 */
public final class ServerLock {
    private final Engine engine;
    private final Request request;

    ServerLock(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
    }

    /**
     * Work under a lock.
     *
     * @param <X> what it may throw
     */
    @FunctionalInterface
    public interface Task<X extends Exception> {
        /**
         * Does the work.
         *
         * @param held the lock
         * @throws X an error of the work
         */
        void run(Held held) throws X;
    }

    /**
     * Work under a lock, with a result.
     *
     * @param <T> the result
     * @param <X> what it may throw
     */
    @FunctionalInterface
    public interface Work<T, X extends Exception> {
        /**
         * Does the work.
         *
         * @param held the lock
         * @return the result
         * @throws X an error of the work
         */
        T call(Held held) throws X;
    }

    /**
     * Makes attempts wait in the queue for up to this time. Without it an attempt is refused at once.
     *
     * @param wait how long; {@link Locks#FOREVER} waits without limit
     * @return a copy with this option
     */
    public ServerLock waiting(Duration wait) {
        return with(request.withWaiting(wait));
    }

    /**
     * A label for people. It grants nothing.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public ServerLock owner(String owner) {
        return with(request.withOwner(owner));
    }

    /**
     * Ties the lock to a connection of its own: it ends one second after that connection.
     *
     * @return a copy with this option
     */
    public ServerLock session() {
        return with(request.withSession());
    }

    /**
     * Asks for {@link Held#predecessor}.
     *
     * @return a copy with this option
     */
    public ServerLock details() {
        return with(request.withDetails());
    }

    /**
     * Requires that so many replicas have the grant in time. Otherwise the lock is given back, and acquiring it throws
     * {@link LockUnavailableException}.
     *
     * @param count how many
     * @param within how long they may take
     * @return a copy with this option
     */
    public ServerLock replicas(int count, Duration within) {
        return with(request.withReplicas(count, within));
    }

    /**
     * Requires that this server, and as many others as {@link #replicas} says, have the grant on disk in time (WAITAOF,
     * from Redis 7.2). Otherwise the lock is given back, and acquiring it throws {@link LockUnavailableException}.
     *
     * @param within how long they may take
     * @return a copy with this option
     */
    public ServerLock fsync(Duration within) {
        return with(request.withFsync(within));
    }

    /**
     * Keeps the lock from others for that time, however soon it is released.
     *
     * @param atLeast how long
     * @return a copy with this option
     */
    public ServerLock atLeast(Duration atLeast) {
        return with(request.withAtLeast(atLeast));
    }

    /**
     * Ends the renewal of the lease after that time.
     *
     * @param maxHold how long
     * @return a copy with this option
     */
    public ServerLock maxHold(Duration maxHold) {
        return with(request.withMaxHold(maxHold));
    }

    /**
     * Sets a callback for the loss of the lock. It runs once, in a thread of the manager.
     *
     * @param lost what to call
     * @return a copy with this option
     */
    public ServerLock onLost(Consumer<LockLostException> lost) {
        return with(request.withOnLost(lost));
    }

    private ServerLock with(Request changed) {
        return new ServerLock(engine, changed);
    }

    /**
     * Gets the lock within {@link #waiting}. The caller has to release it, in any thread. An interrupt cancels the
     * attempt, which leaves nothing behind. (A command that was sent before is still awaited, for at most the
     * time-out.)
     *
     * @return the lock
     * @throws LockRefusedException if somebody else has it
     * @throws LockTimeoutException if somebody else still had it when the wait ended
     * @throws LockException for all other reasons
     * @throws InterruptedException if the thread was interrupted
     */
    public Held acquire() throws InterruptedException {
        return new Held(engine, engine.acquire(request));
    }

    /**
     * Runs the work while the lock is held. When the lock is lost, the thread is interrupted. A
     * {@link LockLostException} is thrown then, unless the work throws an exception of its own. Acquiring the same lock
     * within the work throws {@link LockMisuseException}.
     *
     * @param <X> what the work may throw
     * @param work the work
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted by somebody else
     */
    public <X extends Exception> void run(Task<X> work) throws X, InterruptedException {
        Work<Void, X> withoutResult = held -> {
            work.run(held);
            return null;
        };
        call(withoutResult);
    }

    /**
     * As {@link #run}, with a result.
     *
     * @param <T> the result
     * @param <X> what the work may throw
     * @param work the work
     * @return its result
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted by somebody else
     */
    public <T, X extends Exception> T call(Work<T, X> work) throws X, InterruptedException {
        return Body.play(engine.scopes(), acquire(), work);
    }

    /**
     * A view as a {@link Lock} of the JDK. Its {@code unlock} throws {@link LockLostException} if the lock was lost,
     * and {@link IllegalMonitorStateException} in a thread that does not hold it. It is not reentrant: {@code lock} in
     * a thread that holds it throws {@link LockMisuseException}. {@code newCondition} is not supported. {@code lock}
     * and {@code lockInterruptibly} wait without limit, whatever {@link #waiting} says.
     *
     * @return the view
     */
    public Lock asLock() {
        return new LockView(engine, request);
    }
}
