package dev.serverlock.internal.hold;

import dev.serverlock.Hooks;
import dev.serverlock.LockLostException;
import dev.serverlock.Predecessor;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Errors;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;

/**
 * One grant, as its holder sees it: how long it lasts by the holder's own clock, and whether it was lost. Thread-safe.
 * It refers only weakly to the {@link dev.serverlock.Held} that users get, so that a dropped Held is noticed.
 */
public final class Hold {
    /** Called when a hold ends without a release. Each method is called at most once. */
    public interface Watcher {
        void lost(Hold hold, LockLostException why);

        /** Called when the application no longer refers to the Held. */
        void dropped(Hold hold);
    }

    /** An EXTEND without a reply may still run until this long after its connection was closed. */
    static final long LATE_COPY = 2 * Clock.SECOND;

    private final Context context;
    private final Watcher watcher;
    private final Request request;
    private final long token;
    private final Predecessor predecessor;
    private final long began;
    private final long requested;
    private final long granted;

    /** The number of this hold's newest entry in the timer, whose monitor guards this field. */
    long entry;

    /** The holds of the thread that has this one: see Scopes. */
    volatile List<Hold> siblings = List.of();

    /** The Held, if its thread may get it again. */
    private volatile WeakReference<?> held;

    private long sent; // when the lease started
    private long lease;
    private boolean isPortable;
    private boolean leavesOutQueue; // the next script does
    private boolean hasLeftOutQueue; // the last script did
    private int entries = 1; // how often it was acquired and not released
    private boolean isEnded; // released
    private boolean isDropped; // the application no longer refers to it
    private boolean isGone; // the server no longer has the grant
    private boolean isRenewing;
    private int inFlight; // EXTENDs
    private long shortest; // their shortest lease
    private long settlesAt; // when the server cannot run one that has failed any more
    private LockLostException lost;
    private List<Runnable> listeners = new ArrayList<>(0);
    private List<Runnable> idleListeners = List.of();
    private Followed followed;
    private byte[] result; // what its release passes on, or null

    public Hold(Context context, Watcher watcher, Request request, Grant grant, long began) {
        this.context = context;
        this.watcher = watcher;
        this.request = request;
        this.began = began;
        granted = context.now();
        token = grant.token();
        predecessor = grant.predecessor();
        requested = sent = grant.sent();
        lease = request.lease();
        isPortable = grant.isPortable();
    }

    public Request request() {
        return request;
    }

    public long token() {
        return token;
    }

    /** Null if the lock was free, or no details were requested. */
    public Predecessor predecessor() {
        return predecessor;
    }

    /** When the attempt began. */
    public long began() {
        return began;
    }

    /** When the request that was granted was sent. */
    public long requested() {
        return requested;
    }

    public long granted() {
        return granted;
    }

    /** Lets its thread get this Held again. */
    public void setHeld(Object value) {
        held = new WeakReference<>(value);
    }

    /** The Held that its thread may get again, or null. */
    Object held() {
        WeakReference<?> known = held;
        return known == null ? null : known.get();
    }

    /** Whether the lock is held, and the application has not dropped its Held. */
    boolean isInUse() {
        return whyNotHeld() == null && !isOver() && (held == null || held() != null);
    }

    /** Counts one more acquisition. Returns false if the hold has ended. */
    public synchronized boolean enterAgain() {
        if (isOver()) {
            return false;
        }
        entries++;
        return true;
    }

    /** Whether a release is not the last one, so that the lock stays held. */
    public synchronized boolean leaveAgain() {
        if (isEnded || entries == 1) {
            return false;
        }
        entries--;
        return true;
    }

    /** Sets what is notified of the end of this hold. */
    public synchronized void follow(Followed value) {
        followed = value;
    }

    /** Notifies what follows this hold, once. why: null unless it was lost. */
    public void over(Hooks.End end, LockLostException why) {
        Followed following;
        synchronized (this) {
            following = followed;
        }
        if (following != null) {
            following.ended(end, why);
        }
    }

    /** The state of a lock when it is released. */
    record End(boolean isFirst, boolean wasLost, boolean isGone) {}

    /** What the timer has to do next. */
    record Due(boolean goesOn, boolean renews, long lostAt) {}

    /** A tenth of the lease before its end. */
    synchronized long lostAt() {
        return sent + lease - lease / 10;
    }

    synchronized long renewAt() {
        return sent + lease / 3;
    }

    public synchronized long leaseEnds() {
        return sent + lease;
    }

    /** Why the lock was lost. Null while it is held, or if it was released in time. */
    public LockLostException lost() {
        boolean isLate;
        synchronized (this) {
            isLate = lost == null && !isEnded && context.now() >= lostAt();
        }
        if (isLate) {
            lose("its lease was not renewed in time", false);
        }
        synchronized (this) {
            return lost;
        }
    }

    /** Why the lock may not be held. Null if it is certain that the lock is held. */
    public LockLostException whyNotHeld() {
        LockLostException why = lost();
        synchronized (this) {
            return why == null && isEnded ? new LockLostException(request.name(), "it was released", null) : why;
        }
    }

    public void check() {
        LockLostException why = whyNotHeld();
        if (why != null) {
            // Several threads may throw it; each needs its own stack trace.
            throw new LockLostException(request.name(), Errors.reason(why), why);
        }
    }

    public long left() {
        return whyNotHeld() != null ? 0 : Math.max(0, lostAt() - context.now());
    }

    /**
     * Ends the lock without a release, and notifies the application once. isGone: whether the server no longer has the
     * grant.
     */
    public void lose(String why, boolean isGone) {
        LockLostException reported;
        List<Runnable> notified;
        synchronized (this) {
            this.isGone |= isGone;
            if (lost != null || isEnded || isDropped) {
                return;
            }
            reported = lost = new LockLostException(request.name(), "lost: " + why, null);
            notified = listeners;
            listeners = List.of();
        }
        notified.forEach(Runnable::run);
        watcher.lost(this, reported);
    }

    /** Records that the server no longer knows the grant. */
    public void taken() {
        lose("somebody else has taken it", true);
    }

    /** Runs the listener once when the lock is lost, or now if it has been. The listener must be quick. */
    public void onLost(Runnable listener) {
        synchronized (this) {
            if (lost == null) {
                listeners.add(listener);
                return;
            }
        }
        listener.run();
    }

    /** Removes a listener. */
    public synchronized void forget(Runnable listener) {
        if (lost == null) {
            listeners.remove(listener);
        }
    }

    /**
     * Call this before an EXTEND is sent. Its reply may get lost, so a lease that ends earlier takes effect at once.
     * Returns false if the lock was released, so that none may be sent.
     */
    synchronized boolean extending(long sent, long lease) {
        if (isEnded) {
            return false;
        }
        shortest = inFlight++ == 0 ? lease : Math.min(shortest, lease);
        if (sent + lease < leaseEnds()) {
            this.sent = sent;
            this.lease = lease;
        }
        return true;
    }

    /**
     * Call this when an EXTEND has succeeded or failed. If several are in flight, the client cannot know which one the
     * server runs last, so the shortest of their leases applies, counted from when this one was sent.
     */
    void extended(long sent, long lease, boolean isDone) {
        List<Runnable> idle;
        synchronized (this) {
            inFlight--;
            long counts = Math.min(lease, shortest);
            if (isDone && lost == null && sent + counts > leaseEnds()) {
                this.sent = sent;
                this.lease = counts;
            }
            if (!isDone) {
                settlesAt = context.now() + LATE_COPY;
            }
            if (inFlight > 0) {
                return;
            }
            idle = idleListeners;
            idleListeners = List.of();
            notifyAll();
        }
        idle.forEach(Runnable::run);
    }

    /** Waits until no EXTEND is in flight. Returns false if one still is after the time-out. */
    synchronized boolean awaitIdle(long timeout) throws InterruptedException {
        long end = context.now() + timeout;
        for (long left = timeout; inFlight > 0 && left > 0; left = end - context.now()) {
            wait(Clock.milliseconds(left));
        }
        return inFlight == 0;
    }

    /** Runs the listener once no EXTEND is in flight. */
    void whenIdle(Runnable listener) {
        synchronized (this) {
            if (inFlight > 0) {
                idleListeners = new ArrayList<>(idleListeners);
                idleListeners.add(listener);
                return;
            }
        }
        listener.run();
    }

    /** Whether the server cannot run any more EXTENDs that have failed. */
    synchronized boolean hasSettled() {
        return context.now() >= settlesAt;
    }

    public synchronized boolean isPortable() {
        return isPortable;
    }

    /** Continues with the scripts; returns whether that is new. */
    synchronized boolean becomePortable() {
        boolean wasPortable = isPortable;
        isPortable = true;
        return !wasPortable;
    }

    /** Makes the release pass on this result; null for none. */
    synchronized void passOn(byte[] value) {
        result = value;
    }

    /** Null if there is none. */
    synchronized byte[] result() {
        return result;
    }

    /** Whether a script sent now leaves out the queue. isAlone: whether all scripts do. */
    synchronized boolean leavesOutQueue(boolean isAlone) {
        hasLeftOutQueue = isAlone || leavesOutQueue;
        leavesOutQueue = false;
        return hasLeftOutQueue;
    }

    /** Makes the next script leave out the queue; returns false if the last one already did. */
    synchronized boolean leaveOutQueue() {
        leavesOutQueue = !hasLeftOutQueue;
        return leavesOutQueue;
    }

    /** Marks the lock as released. */
    End end() {
        boolean wasLost = lost() != null;
        synchronized (this) {
            boolean isFirst = !isEnded;
            isEnded = true;
            return new End(isFirst, wasLost, isGone);
        }
    }

    /** Call this when the Held has been dropped: the hold is no longer renewed, and its session ends. */
    public void drop() {
        boolean wasEnded;
        synchronized (this) {
            isDropped = true;
            wasEnded = isEnded;
        }
        if (!wasEnded) {
            watcher.dropped(this);
        }
    }

    public synchronized boolean isReleased() {
        return isEnded;
    }

    synchronized boolean isOver() {
        return isEnded || isDropped || lost != null;
    }

    synchronized void renewalEnds() {
        isRenewing = false;
    }

    Due due() {
        if (whyNotHeld() != null) {
            return new Due(false, false, 0);
        }
        synchronized (this) {
            if (isDropped) {
                return new Due(false, false, 0);
            }
            long now = context.now();
            boolean isTooOld = request.maxHold() != 0 && now >= Clock.after(granted, request.maxHold());
            boolean mayRenew = !context.isClosed() && !isTooOld;
            boolean renews = mayRenew && !isRenewing && now >= renewAt();
            isRenewing |= renews;
            return new Due(true, renews, lostAt());
        }
    }
}
