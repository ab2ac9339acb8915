package dev.serverlock.internal.command;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ReplyError;
import java.util.concurrent.atomic.AtomicBoolean;

/** Whether the server has the module. Without it, locks use a script. Thread-safe. */
public final class Module {
    private static final long ASK_AGAIN = 5 * Clock.SECOND;

    private final Context context;
    private final boolean mayUseScripts;
    private final AtomicBoolean mayWarn;
    private volatile boolean isMissing;
    private long missingUntil;

    public Module(Context context, boolean mayUseScripts, boolean warns) {
        this.context = context;
        this.mayUseScripts = mayUseScripts;
        mayWarn = new AtomicBoolean(warns);
    }

    public boolean mayUseScripts() {
        return mayUseScripts;
    }

    /**
     * Whether to use the scripts, because the server recently did not know LOCK.*. Every five seconds one caller gets
     * false, and tries LOCK.* on behalf of all.
     */
    public boolean isMissing() {
        if (!isMissing) {
            return false;
        }
        synchronized (this) {
            boolean isTooSoon = context.now() < missingUntil;
            if (!isTooSoon) {
                missingUntil = context.now() + ASK_AGAIN;
            }
            return isTooSoon;
        }
    }

    /** Whether it was missing when the server was last asked. */
    public boolean wasMissing() {
        return isMissing;
    }

    /** Records that the server knows LOCK.*. Returns whether the module was missing before. */
    public boolean found() {
        if (!isMissing) {
            return false;
        }
        synchronized (this) {
            boolean wasMissing = isMissing;
            isMissing = false;
            return wasMissing;
        }
    }

    /** Records that the server does not know LOCK.*. Returns whether to continue with the scripts. */
    public boolean missed(ReplyError reply) {
        if (!mayUseScripts) {
            return false;
        }
        if (mayWarn.getAndSet(false)) {
            context.warn(
                    "the server does not have the lock module: locks work through a script, in order of arrival;"
                            + " sessions, blocking waits and deadlock detection need the module",
                    reply);
        }
        synchronized (this) {
            missingUntil = context.now() + ASK_AGAIN;
            isMissing = true;
        }
        return true;
    }
}
