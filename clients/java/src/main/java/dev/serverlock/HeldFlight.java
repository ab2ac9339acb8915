package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.hold.Hold;

/** The held lock of a caller that computes a result. Its release passes on the result. */
final class HeldFlight extends Held {
    private final Engine engine;
    /** Null until it is computed. */
    private byte[] result;

    HeldFlight(Engine engine, Hold hold) {
        super(engine, hold);
        this.engine = engine;
    }

    void computed(byte[] value) {
        result = value;
    }

    /** A caller that has its result needs the lock no longer, so it does not matter what becomes of the release. */
    @Override
    void leave(boolean hasFailed) {
        if (hasFailed) {
            close();
            return;
        }
        try {
            engine.commands().passOn(hold(), result);
            end(this::release);
        } catch (LockException notReleased) {
            engine.context().warn(notReleased.getMessage(), null);
        }
    }
}
