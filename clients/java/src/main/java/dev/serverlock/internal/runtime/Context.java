package dev.serverlock.internal.runtime;

import dev.serverlock.LockMisuseException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The time-out, clock, log, threads and state that all of a manager's parts share. Thread-safe. */
public final class Context {
    /** The size of each pool. */
    private static final int THREADS = 2;

    private final Clock clock;
    private final long timeout;
    private final System.Logger log;
    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private final ThreadPoolExecutor debts = pool("serverlock-debt", THREADS);
    private final ThreadPoolExecutor callbacks = pool("serverlock-callback", THREADS);
    private final ThreadPoolExecutor async = pool("serverlock-async", 1);
    private final Executor continuations;

    /**
     * timeout: how long one reply may take, in nanoseconds. continuations: where the application's futures complete.
     */
    public Context(Clock clock, long timeout, System.Logger log, Executor continuations) {
        this.clock = clock;
        this.timeout = timeout;
        this.log = log;
        this.continuations = continuations;
    }

    /** A few daemon threads, which end when they are idle. */
    private ThreadPoolExecutor pool(String name, int threads) {
        ThreadPoolExecutor pool = new ThreadPoolExecutor(
                threads, threads, 2, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> daemon(name, work));
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    /** Creates a daemon thread; the caller starts it at once. */
    public Thread thread(String name, Runnable work) {
        return daemon(name, clock.counted(work));
    }

    private static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    public long now() {
        return clock.now();
    }

    /** Waits until the signal is completed, for at most this long. Returns whether it is. */
    public boolean await(CompletableFuture<?> signal, long span) throws InterruptedException {
        return clock.await(signal, span);
    }

    /** Completes the signal after this time, unless something completes it first. Returns it. */
    public CompletableFuture<Void> completeAfter(CompletableFuture<Void> signal, long span) {
        return clock.completeAfter(signal, span);
    }

    /** The longest time for which a thread may wait when it has to notice that time has passed. */
    public long longestSleep() {
        return clock.longestSleep();
    }

    /** How long one reply may take, in nanoseconds. */
    public long timeout() {
        return timeout;
    }

    /** Runs releases and cancels that did not succeed at once. These threads do not delay renewals. */
    public Executor debts() {
        return work -> debts.execute(clock.counted(work));
    }

    /** How many debts are queued or being settled. */
    public int owed() {
        return debts.getQueue().size() + debts.getActiveCount();
    }

    /** For the application's callbacks, which may block. */
    public Executor callbacks() {
        return work -> callbacks.execute(clock.counted(work));
    }

    /** The one thread that runs the steps of all attempts and releases that return futures. No step may block. */
    public Executor async() {
        return work -> async.execute(clock.counted(work));
    }

    /** Runs what the application has added to a future. If its executor does not, a thread for callbacks does. */
    public void complete(Runnable completion) {
        Runnable counted = clock.counted(completion);
        try {
            continuations.execute(counted);
        } catch (RuntimeException rejected) {
            log.log(System.Logger.Level.WARNING, "the executor for futures has rejected one", rejected);
            callbacks.execute(counted);
        }
    }

    /** Runs an application's hook or callback in this thread. Its errors must not lose a lock. */
    public void callBack(Runnable call) {
        try {
            call.run();
        } catch (RuntimeException | Error error) { // an Error, for example because one of its classes is missing
            log.log(System.Logger.Level.WARNING, "a hook or callback failed", error);
        }
    }

    /** Logs a warning. error: the cause, whose message is appended, or null. */
    public void warn(String text, Throwable error) {
        log.log(System.Logger.Level.WARNING, error == null ? text : text + ": " + error.getMessage());
    }

    public boolean isClosed() {
        return closed.isDone();
    }

    /** Throws LockMisuseException if the manager is closed. */
    public void checkOpen(String name) {
        if (isClosed()) {
            throw new LockMisuseException(name, "its Locks are closed", null);
        }
    }

    /** Waits for this time, or until the manager is closed. */
    public void pause(long span) throws InterruptedException {
        clock.await(closed, span);
    }

    public void close() {
        closed.complete(null);
    }

    /** Ends idle threads at once. Queued work is still done. */
    public void endThreads() {
        debts.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
        callbacks.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
        async.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
    }
}
