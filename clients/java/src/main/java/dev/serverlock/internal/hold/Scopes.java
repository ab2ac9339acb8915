package dev.serverlock.internal.hold;

import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.command.Request;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** The holds that each thread has, as far as that is known: in scopes, and those of reentrant locks. Thread-safe. */
public final class Scopes {
    private final ThreadLocal<List<Hold>> scopes = new ThreadLocal<>();

    /** Records that the current thread has this hold, until {@link #leave}. */
    public void enter(Hold hold) {
        List<Hold> mine = scopes.get();
        if (mine == null) {
            mine = new CopyOnWriteArrayList<>();
            scopes.set(mine);
        }
        if (!mine.contains(hold)) {
            mine.add(hold);
            hold.siblings = mine;
        }
    }

    /** Any thread may call this. */
    public void leave(Hold hold) {
        List<Hold> siblings = hold.siblings;
        if (siblings.isEmpty()) {
            return;
        }
        siblings.remove(hold);
        hold.siblings = List.of();
        if (siblings.isEmpty() && siblings == scopes.get()) {
            scopes.remove();
        }
    }

    /**
     * Returns the Held that the current thread has and gets again; null if there is none. Throws LockMisuseException if
     * the thread has the lock and must not get it again: it would wait for itself.
     */
    public Object again(Request request) {
        List<Hold> mine = scopes.get();
        if (mine == null) {
            return null;
        }
        for (Hold hold : mine) {
            if (!hold.request().hasKeyOf(request) || !hold.isInUse()) {
                continue;
            }
            Object held = hold.held();
            if (request.isReentrant() && held != null && hold.request().isSameLock(request)) {
                return held;
            }
            if (hold.request().isExclusive() || request.isExclusive()) {
                throw new LockMisuseException(
                        request.name(), "this thread already holds it, in a scope around this call", null);
            }
        }
        return null;
    }
}
