package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.Runs;
import dev.serverlock.internal.once.Run;

/** The held lock of one tick. If the body releases it, another process may run the tick. */
public final class HeldOnce extends Held {
    private final Runs runs;
    private final Run run;

    HeldOnce(Engine engine, Runs runs, Runs.Begun begun) {
        super(engine, begun.hold());
        this.runs = runs;
        run = begun.run();
    }

    /**
     * {@return the number of the tick: how many periods after the beginning of 1970 it begins, by the server's clock}
     */
    public long tick() {
        return run.tick();
    }

    /** {@return whether the lease of a process that ran expired within this window: its work may be half done} */
    public boolean recovered() {
        return run.isRecovery();
    }

    /** If the body has succeeded, nobody else runs its tick. */
    @Override
    void leave(boolean hasFailed) {
        if (hasFailed) {
            close();
        } else {
            end(this::finish);
        }
    }

    private boolean finish() {
        try {
            return runs.finish(hold(), run);
        } finally {
            forget();
        }
    }
}
