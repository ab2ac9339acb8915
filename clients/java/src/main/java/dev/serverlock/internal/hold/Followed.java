package dev.serverlock.internal.hold;

import dev.serverlock.Hooks;
import dev.serverlock.LockLostException;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;

/** What the application's {@link Hooks.Watch} hears of one attempt and its hold: first a result, then one end. */
public final class Followed {
    private final Context context;
    private final Request request;
    private final long began;
    private long granted;
    /** Null if nobody follows, or all has been said. */
    private Hooks.Watch watch;

    private Followed(Context context, Request request, long began) {
        this.context = context;
        this.request = request;
        this.began = began;
    }

    /** An attempt begins, in the thread that asks. */
    public static Followed begin(Context context, Hooks hooks, Request request) {
        Followed followed = new Followed(context, request, context.now());
        context.callBack(() -> followed.watch = hooks.began(request.names()));
        return followed;
    }

    /** The attempt got the lock. Call this before the hold can end. */
    public void granted(boolean isPortable, long token, long when) {
        granted = when;
        Hooks.Watch follower = watch;
        if (follower != null) {
            context.callBack(() -> follower.granted(request.command(isPortable), token, Clock.duration(when - began)));
        }
    }

    /** The attempt ended with another holder's result. */
    public void result(boolean isPortable) {
        Hooks.Watch last = last();
        if (last != null) {
            context.callBack(() -> last.result(request.command(isPortable), Clock.duration(context.now() - began)));
        }
    }

    /** The attempt failed or was cancelled. */
    public void failed(boolean isPortable, Exception why) {
        Hooks.Watch last = last();
        if (last != null) {
            context.callBack(
                    () -> last.failed(request.command(isPortable), Clock.duration(context.now() - began), why));
        }
    }

    /** The hold has ended. Only the first call counts. why: null unless it was lost. */
    void ended(Hooks.End end, LockLostException why) {
        Hooks.Watch last = last();
        if (last != null) {
            context.callBack(() -> last.ended(end, Clock.duration(context.now() - granted), why));
        }
    }

    private synchronized Hooks.Watch last() {
        Hooks.Watch last = watch;
        watch = null;
        return last;
    }
}
