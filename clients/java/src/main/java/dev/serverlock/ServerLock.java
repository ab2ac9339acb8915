package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.command.Request;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;

/**
 * The description of a lock. It holds nothing and never changes, so any number of threads may use it. Each acquisition
 * returns its own {@link Held}. The methods for options return a copy, and throw {@link LockArgumentException} for a
 * bad value.
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
     * @param <X> the type of exception that it may throw
     */
    @FunctionalInterface
    public interface Task<X extends Exception> {
        /**
         * Does the work.
         *
         * @param held the lock
         * @throws X an error from the work
         */
        void run(Held held) throws X;
    }

    /**
     * Work under a lock, with a result.
     *
     * @param <T> the type of the result
     * @param <X> the type of exception that it may throw
     */
    @FunctionalInterface
    public interface Work<T, X extends Exception> {
        /**
         * Does the work.
         *
         * @param held the lock
         * @return the result
         * @throws X an error from the work
         */
        T call(Held held) throws X;
    }

    /**
     * Makes attempts wait in the queue. Without this option, an attempt that finds the lock taken is refused at once.
     *
     * @param wait the longest wait; {@link Locks#FOREVER} for no limit
     * @return a copy with this option
     */
    public ServerLock waiting(Duration wait) {
        return with(request.withWaiting(wait));
    }

    /**
     * Sets a label for humans. It does not affect grants. The default names this process: {@code host:pid}.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public ServerLock owner(String owner) {
        return with(request.withOwner(owner));
    }

    /**
     * Sends no label, so that classic clients of the same key read its value as a number.
     *
     * @return a copy with this option
     */
    public ServerLock withoutOwner() {
        return with(request.withoutOwner());
    }

    /**
     * Lets a thread that holds the lock get it again: the same {@link Held}. Each acquisition needs a release. Without
     * this option, asking again throws {@link LockMisuseException}, because code that does so usually does not know
     * that it is already inside.
     *
     * @return a copy with this option
     */
    public ServerLock reentrant() {
        return with(request.withReentrant());
    }

    /**
     * Binds the lock to a connection: it ends one second after that connection closes. The session locks of a thread
     * share a connection. A thread whose attempt would wait for itself, through the session locks of other threads or
     * processes, gets a {@link LockDeadlockException} at once.
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
     * Requires that replicas confirm the grant. Otherwise the lock is released, and acquiring it throws
     * {@link LockUnavailableException}.
     *
     * @param count how many replicas
     * @param within how long they may take
     * @return a copy with this option
     */
    public ServerLock replicas(int count, Duration within) {
        return with(request.withReplicas(count, within));
    }

    /**
     * Requires that this server, and as many replicas as {@link #replicas} asks for, have written the grant to disk
     * (WAITAOF, from Redis 7.2). Otherwise the lock is released, and acquiring it throws
     * {@link LockUnavailableException}.
     *
     * @param within how long they may take
     * @return a copy with this option
     */
    public ServerLock fsync(Duration within) {
        return with(request.withFsync(within));
    }

    /**
     * Keeps the lock from others for this long after the grant, even if it is released earlier.
     *
     * @param atLeast the shortest time between two grants
     * @return a copy with this option
     */
    public ServerLock atLeast(Duration atLeast) {
        return with(request.withAtLeast(atLeast));
    }

    /**
     * Stops renewing the lease this long after the grant.
     *
     * @param maxHold the time from the grant to the last renewal
     * @return a copy with this option
     */
    public ServerLock maxHold(Duration maxHold) {
        return with(request.withMaxHold(maxHold));
    }

    /**
     * Sets a callback that runs once when the lock is lost, in a thread of {@link Locks}.
     *
     * @param lost the callback
     * @return a copy with this option
     */
    public ServerLock onLost(Consumer<LockLostException> lost) {
        return with(request.withOnLost(lost));
    }

    private ServerLock with(Request changed) {
        return new ServerLock(engine, changed);
    }

    /**
     * Acquires the lock, and waits as long as {@link #waiting} allows. The caller must release it, in any thread. An
     * interrupt cancels the attempt, which leaves nothing behind; the reply to a command that was already sent is still
     * awaited, for at most the time-out.
     *
     * @return the lock
     * @throws LockRefusedException if somebody else has it
     * @throws LockTimeoutException if somebody else still had it when the wait ended
     * @throws LockException for all other reasons
     * @throws InterruptedException if the thread was interrupted
     */
    public Held acquire() throws InterruptedException {
        return Held.acquire(engine, request);
    }

    /**
     * Acquires the lock like {@link #acquire}, without a thread that waits. This needs Lettuce; with Jedis the future
     * fails with {@link LockMisuseException}.
     *
     * <p>Cancelling the future, or completing it in any other way, ends the attempt, which leaves nothing behind. Like
     * any {@link CompletableFuture}, it is not cancelled by cancelling a stage that depends on it. The future completes
     * in the executor of {@link Locks.Builder#executor}, so code that is added to it may block. All errors of
     * {@link #acquire} complete it exceptionally.
     *
     * <p>The lock belongs to no thread: asking for it again waits, and ends with the wait. So {@link #reentrant} and
     * {@link #session} are errors here, and so are {@link #replicas} and {@link #fsync}. The caller must release the
     * lock, with {@link Held#releaseAsync} or in any thread.
     *
     * @return completes with the lock
     */
    public CompletableFuture<Held> acquireAsync() {
        return engine.acquireAsync(request, hold -> new Held(engine, hold));
    }

    /**
     * Runs the work while the lock is held. A loss interrupts the thread, and {@link LockLostException} is thrown
     * unless the work throws its own exception. Acquiring the same lock within the work throws
     * {@link LockMisuseException}, unless it is {@link #reentrant}. The end of the outermost {@code run} releases the
     * lock, whatever was acquired within it.
     *
     * @param <X> the type of exception that the work may throw
     * @param work the work
     * @throws X from the work
     * @throws InterruptedException if the thread was interrupted for a reason other than the loss
     */
    public <X extends Exception> void run(Task<X> work) throws X, InterruptedException {
        Work<Void, X> withoutResult = held -> {
            work.run(held);
            return null;
        };
        call(withoutResult);
    }

    /**
     * Like {@link #run}, with a result.
     *
     * @param <T> the type of the result
     * @param <X> the type of exception that the work may throw
     * @param work the work
     * @return its result
     * @throws X from the work
     * @throws InterruptedException if the thread was interrupted for a reason other than the loss
     */
    public <T, X extends Exception> T call(Work<T, X> work) throws X, InterruptedException {
        Held outer = Held.again(engine, request);
        return outer == null ? Body.play(engine.scopes(), acquire(), work) : Body.playAgain(outer, work);
    }

    /**
     * A view of the lock with the JDK's interface. Unless this lock is {@link #reentrant}, {@code lock} throws
     * {@link LockMisuseException} in a thread that already holds the lock. {@code unlock} throws
     * {@link LockLostException} if the lock was lost, and {@link IllegalMonitorStateException} in a thread that does
     * not hold it. {@code lock} and {@code lockInterruptibly} wait without limit, whatever {@link #waiting} says. The
     * view has no conditions.
     *
     * @return the lock
     */
    public Lock asLock() {
        return new LockView(engine, request);
    }

    /**
     * Like {@link #asLock}, but a thread may lock it again, as with {@link java.util.concurrent.locks.ReentrantLock}:
     * the lock is released by as many calls of {@code unlock} as there were of {@code lock}.
     *
     * @return the lock
     */
    public Lock asReentrantLock() {
        return reentrant().asLock();
    }
}
