package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.util.ArrayList;
import java.util.List;

/**
 * One grant, as its holder sees it: how long it is good for on the holder's own watch, and whether it was lost.
 * Renewal, loss and release meet here from several threads. It does not know the {@link Held} that users have, so that
 * one that was dropped is noticed.
 */
final class Hold {
    final Engine engine;
    final Request request;
    final long token;
    final Predecessor predecessor;
    final long began;
    final long granted;
    /** Of a session. */
    final Connection connection;

    /** The number of its entry in the timer, which guards it. */
    long entry;

    private long sent; // what the lease counts from
    private long lease;
    private boolean isPortable;
    private boolean isEnded; // released
    private boolean isDropped; // nobody refers to it any more
    private boolean isGone; // the server has said that the grant is over
    private boolean isRenewing;
    private int onTheirWay; // EXTENDs
    private long shortest; // the shortest lease of them
    private LockLostException lost;
    private List<Runnable> listeners = new ArrayList<>(0);

    Hold(Engine engine, Request request, Grant grant, long began) {
        this.engine = engine;
        this.request = request;
        this.began = began;
        granted = engine.clock.now();
        token = grant.token;
        predecessor = grant.predecessor;
        connection = grant.connection;
        sent = grant.sent;
        lease = request.lease;
        isPortable = grant.isPortable;
    }

    /** What is known of a lock when it is given back. */
    record End(boolean isFirst, boolean wasLost, boolean isGone) {}

    /** What the timer is to do. */
    record Due(boolean goesOn, boolean renews, long lostAt) {}

    /** A tenth of the lease before its end. */
    synchronized long lostAt() {
        return sent + lease - lease / 10;
    }

    synchronized long renewAt() {
        return sent + lease / 3;
    }

    synchronized long leaseEnds() {
        return sent + lease;
    }

    /** Why the lock is lost; null while it is held, and after it was released in time. */
    LockLostException lost() {
        boolean isLate;
        synchronized (this) {
            isLate = lost == null && !isEnded && engine.clock.now() >= lostAt();
        }
        if (isLate) {
            lose("its lease was not renewed in time", false);
        }
        synchronized (this) {
            return lost;
        }
    }

    /** Why it is not held for certain; null: it is. */
    LockLostException fault() {
        LockLostException why = lost();
        synchronized (this) {
            return why == null && isEnded ? new LockLostException(request.name, "it was released", null) : why;
        }
    }

    void check() {
        LockLostException why = fault();
        if (why != null) {
            // The same object is thrown in several threads; each wants its own trace.
            throw new LockLostException(request.name, reason(why), why);
        }
    }

    static String reason(LockLostException why) {
        String text = why.getMessage();
        return text.substring(text.indexOf(why.key()) + why.key().length() + 2);
    }

    long left() {
        return fault() != null ? 0 : Math.max(0, lostAt() - engine.clock.now());
    }

    /** The lock is over without having been released. Its user is told once. */
    void lose(String why, boolean isGone) {
        LockLostException told;
        List<Runnable> tell;
        synchronized (this) {
            this.isGone |= isGone;
            if (lost != null || isEnded || isDropped) {
                return;
            }
            told = lost = new LockLostException(request.name, "lost: " + why, null);
            tell = listeners;
            listeners = List.of();
        }
        tell.forEach(Runnable::run);
        engine.callbacks.execute(() -> engine.lost(this, told));
    }

    /** The server does not know the grant any more. */
    void taken() {
        lose("somebody has taken it away", true);
    }

    /** Calls once when the lock is lost; at once if it is. It must be quick. */
    void onLost(Runnable listener) {
        synchronized (this) {
            if (lost == null) {
                listeners.add(listener);
                return;
            }
        }
        listener.run();
    }

    /** An EXTEND is on its way. Its reply may be lost, so a lease that ends earlier counts at once. */
    synchronized void extending(long sent, long lease) {
        shortest = onTheirWay++ == 0 ? lease : Math.min(shortest, lease);
        if (sent + lease < leaseEnds()) {
            this.sent = sent;
            this.lease = lease;
        }
    }

    /**
     * What became of it. Of those that are on their way together nobody knows which the server does last. One that it
     * does after this one ends no earlier than its lease after this one was sent: the shortest lease of them counts.
     */
    synchronized void extended(long sent, long lease, boolean isDone) {
        onTheirWay--;
        long counts = Math.min(lease, shortest);
        if (isDone && lost == null && sent + counts > leaseEnds()) {
            this.sent = sent;
            this.lease = counts;
        }
    }

    synchronized boolean isPortable() {
        return isPortable;
    }

    /** Goes on with the scripts; tells whether it did not before. */
    synchronized boolean becomePortable() {
        boolean wasPortable = isPortable;
        isPortable = true;
        return !wasPortable;
    }

    /** Marks it as released. */
    End end() {
        boolean wasLost = lost() != null;
        synchronized (this) {
            boolean isFirst = !isEnded;
            isEnded = true;
            return new End(isFirst, wasLost, isGone);
        }
    }

    /** Nobody refers to it any more, so it is not renewed. A session ends. */
    void drop() {
        boolean wasEnded;
        synchronized (this) {
            isDropped = true;
            wasEnded = isEnded;
        }
        if (!wasEnded) {
            engine.timer.forget();
            engine.endSession(this);
        }
    }

    synchronized boolean isReleased() {
        return isEnded;
    }

    synchronized boolean isOver() {
        return isEnded || isDropped || lost != null;
    }

    synchronized void renewalEnds() {
        isRenewing = false;
    }

    Due due() {
        if (fault() != null) {
            return new Due(false, false, 0);
        }
        synchronized (this) {
            if (isDropped) {
                return new Due(false, false, 0);
            }
            long now = engine.clock.now();
            boolean isTooOld = request.maxHold != 0 && now >= Clock.after(granted, request.maxHold);
            boolean mayRenew = !engine.isClosed() && !isTooOld;
            boolean renews = mayRenew && !isRenewing && now >= renewAt();
            isRenewing |= renews;
            return new Due(true, renews, lostAt());
        }
    }
}
