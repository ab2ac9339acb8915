package dev.serverlock.internal;

import dev.serverlock.internal.hold.Hold;
import java.util.function.Function;

/** Lets dev.serverlock.testing lose a hold, which the API does not offer. */
public final class Losing {
    /** Finds what is behind a Held. */
    private static volatile Function<Object, Hold> holds;

    private Losing() {}

    /** Held calls this before the first one exists. */
    public static void register(Function<Object, Hold> holds) {
        Losing.holds = holds;
    }

    /** Makes the hold lost, and notifies its holder. Returns it. */
    public static Hold lose(Object held, String why) {
        Hold hold = holds.apply(held);
        hold.lose(why, true);
        return hold;
    }
}
