package dev.serverlock.internal.hold;

import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.command.Request;
import java.util.ArrayList;
import java.util.List;

/** The holds whose scopes each thread is in. Thread-safe. */
public final class Scopes {
    private final ThreadLocal<List<Hold>> scopes = new ThreadLocal<>();

    /** Enters the hold's scope in the current thread, until {@link #leave}. */
    public void enter(Hold hold) {
        List<Hold> around = scopes.get();
        if (around == null) {
            around = new ArrayList<>(2);
            scopes.set(around);
        }
        around.add(hold);
    }

    public void leave(Hold hold) {
        List<Hold> around = scopes.get();
        if (around != null) {
            around.remove(hold);
            if (around.isEmpty()) {
                scopes.remove();
            }
        }
    }

    /** Throws LockMisuseException in a scope of the same lock: the thread would wait for itself. */
    public void refuseAgain(Request request) {
        List<Hold> around = scopes.get();
        if (around == null) {
            return;
        }
        for (Hold hold : around) {
            boolean excludes = hold.request().isExclusive() || request.isExclusive();
            if (excludes && hold.request().hasKeyOf(request) && hold.whyNotHeld() == null) {
                throw new LockMisuseException(
                        request.name(), "this thread already holds it, in a scope around this call", null);
            }
        }
    }
}
