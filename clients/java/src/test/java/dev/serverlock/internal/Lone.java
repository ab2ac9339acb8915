package dev.serverlock.internal;

/** The wait of a manager's only attempt, which blocks. */
public final class Lone {
    private Lone() {}

    /**
     * Ends it after its current piece, as when others wait too.
     *
     * @param engine the manager
     */
    public static void end(Engine engine) {
        engine.resources().blocking().end();
    }
}
