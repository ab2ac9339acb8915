package dev.serverlock;

import java.util.ArrayList;
import java.util.List;

/** The locks of the scopes that the current thread is in. */
final class Scopes {
    private static final ThreadLocal<List<Hold>> AROUND = new ThreadLocal<>();

    private Scopes() {}

    static void enter(Hold hold) {
        List<Hold> around = AROUND.get();
        if (around == null) {
            around = new ArrayList<>(2);
            AROUND.set(around);
        }
        around.add(hold);
    }

    static void leave(Hold hold) {
        List<Hold> around = AROUND.get();
        if (around != null) {
            around.remove(hold);
            if (around.isEmpty()) {
                AROUND.remove();
            }
        }
    }

    /** A thread that acquires a lock within its own scope would wait for itself. */
    static void refuseAgain(Engine engine, Request request) {
        List<Hold> around = AROUND.get();
        if (around == null) {
            return;
        }
        for (Hold hold : around) {
            boolean excludes = hold.request.isExclusive() || request.isExclusive();
            if (hold.engine == engine && excludes && hold.request.hasKeyOf(request) && hold.whyNotHeld() == null) {
                throw new LockMisuseException(
                        request.name, "this thread already holds it, in a scope around this call", null);
            }
        }
    }
}
