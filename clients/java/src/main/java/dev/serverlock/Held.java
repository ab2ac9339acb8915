package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.Losing;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Words;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;

/**
 * A held lock, until it is released or lost. Any thread may call its methods. A Held that has been garbage collected is
 * not renewed.
 *
 * <p>In a try-with-resources statement, leaving the block releases the lock:
 *
 * <pre>{@code
 * try (Held held = report.acquire()) {
 *     write(held.token());
 * }
 * }</pre>
 */
public sealed class Held implements AutoCloseable permits HeldOnce, HeldFlight {
    private static final Cleaner CLEANER = Cleaner.create();

    static {
        Losing.register(held -> ((Held) held).hold);
    }

    private final Engine engine;
    private final Hold hold;
    private final Cleaner.Cleanable cleanable;
    /** What a loss interrupts. Null while no body runs; only the thread that has the lock uses this field. */
    Body body;

    Held(Engine engine, Hold hold) {
        this.engine = engine;
        this.hold = hold;
        cleanable = CLEANER.register(this, hold::drop);
    }

    /** Gets the lock for the current thread: the one that it has, if the request is reentrant, or a new one. */
    static Held acquire(Engine engine, Request request) throws InterruptedException {
        Held again = again(engine, request);
        if (again != null && again.hold.enterAgain()) {
            return again;
        }
        Held held = new Held(engine, engine.acquire(request));
        held.hold.setHeld(held);
        if (request.isReentrant()) {
            engine.scopes().enter(held.hold);
        }
        return held;
    }

    /** Returns what the current thread has and gets again, or null. */
    static Held again(Engine engine, Request request) throws InterruptedException {
        if (!request.isReentrant()) {
            return null;
        }
        Held held = (Held) engine.again(request);
        if (held != null && Thread.interrupted()) {
            throw new InterruptedException("the attempt to get the lock " + request.name() + " was interrupted");
        }
        return held;
    }

    final Hold hold() {
        return hold;
    }

    /** Call this when the hold has ended. */
    final void forget() {
        cleanable.clean();
    }

    /** {@return the key, or the keys, in quotes} */
    public String key() {
        return hold.request().name();
    }

    /** {@return the fencing token, which grows with each grant of the key: pass it to the storage that you write to} */
    public long token() {
        return hold.token();
    }

    /**
     * {@return the previous holder that did not release the lock; empty if there is none, or if the lock was acquired
     * with neither {@link ServerLock#details} nor {@link Locks#recover}}
     */
    public Optional<Predecessor> predecessor() {
        return Optional.ofNullable(hold.predecessor());
    }

    /** {@return the time from the call to the grant} */
    public Duration waited() {
        return Clock.duration(hold.granted() - hold.began());
    }

    /**
     * {@return how long the lock is still certain to be held if no renewal succeeds; zero once it is lost or released}
     */
    public Duration left() {
        try {
            return Clock.duration(hold.left());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Throws unless it is certain that the lock is held. This sends nothing, so call it before each step of the work.
     *
     * @throws LockLostException if the lock is lost or released
     */
    public void check() {
        try {
            hold.check();
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Releases the lock, even if the thread is interrupted. This takes at most one command's time-out. If there is no
     * reply by then, the release continues in the background; at worst the lock expires with its lease.
     *
     * <p>With {@link ServerLock#reentrant}, each acquisition needs a release. One that is not the last only returns
     * whether the lock is held.
     *
     * @return whether the lock was held to the end
     * @throws LockMisuseException if it has already been released
     */
    public boolean release() {
        return release(Duration.ZERO);
    }

    /**
     * Releases the lock after a delay, and returns at once. The lock expires at that time even if the process ends
     * first.
     *
     * @param later how long to keep the lock from others
     * @return whether the lock was held to the end
     * @throws LockMisuseException if it has already been released
     */
    public boolean release(Duration later) {
        long nanos = Clock.nanos(later);
        try {
            if (hold.leaveAgain()) {
                return hold.whyNotHeld() == null;
            }
        } finally {
            Reference.reachabilityFence(this);
        }
        return releaseEntirely(nanos);
    }

    /**
     * Releases the lock like {@link #release()}, without a thread that waits. This needs Lettuce; with Jedis the future
     * fails with {@link LockMisuseException}, and the lock stays held. Cancelling the future changes nothing.
     *
     * @return completes with whether the lock was held to the end
     */
    public CompletableFuture<Boolean> releaseAsync() {
        try {
            if (hold.leaveAgain()) {
                return CompletableFuture.completedFuture(hold.whyNotHeld() == null);
            }
            return engine.releaseAsync(hold, 0);
        } finally {
            if (hold.isReleased()) {
                forget();
            }
            Reference.reachabilityFence(this);
        }
    }

    /** Releases the lock, however often it was acquired. later: in nanoseconds. */
    private boolean releaseEntirely(long later) {
        try {
            return engine.release(hold, later);
        } finally {
            forget();
        }
    }

    /**
     * Releases the lock like {@link #release()}, unless it has already been released.
     *
     * @throws LockLostException if it was not held to the end
     */
    @Override
    public void close() {
        end(this::release);
    }

    /** Leaves a body, the outermost one of this lock. */
    void leave(boolean hasFailed) {
        end(() -> releaseEntirely(0));
    }

    /** Ends the hold, unless it has already been released. way: returns whether the lock was held to the end. */
    final void end(BooleanSupplier way) {
        LockLostException lost = hold.lost();
        boolean wasHeld;
        try {
            wasHeld = way.getAsBoolean();
        } catch (LockMisuseException releasedBefore) {
            return;
        }
        if (!wasHeld) {
            // One for each call: an exception cannot be added to itself as a suppressed one.
            throw Errors.releasedLate(key(), lost);
        }
    }

    /**
     * Sets a new lease, counted from now. Renewals do this automatically, with the lock's own lease.
     *
     * @param lease at least 1 ms
     * @throws LockLostException if the lock is lost
     */
    public void extend(Duration lease) {
        try {
            engine.commands().extend(hold, hold.request().leaseOf(lease));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Asks the server whether the lock is held.
     *
     * @return how long it is still held
     * @throws LockLostException if it is not held
     */
    public Duration verify() {
        try {
            return Clock.duration(engine.commands().verify(hold));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Runs one command on the lock's server, only if the lock is held there at that moment. In a cluster the key must
     * be in the lock's slot.
     *
     * @param command the command
     * @param key its first key
     * @param args its other arguments: byte arrays as they are, anything else as text
     * @return the reply: null, Long, byte[], or a List of these
     * @throws LockLostException if the lock is not held
     */
    public Object fenced(String command, String key, Object... args) {
        Words words = new Words(args.length + 2).add(command).add(key);
        for (Object arg : args) {
            if (arg instanceof byte[] bytes) {
                words.add(bytes);
            } else {
                words.add(String.valueOf(arg));
            }
        }
        try {
            return engine.commands().fenced(hold, words.done());
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
