package dev.serverlock.internal;

import dev.serverlock.internal.wire.Pipeline;
import java.util.Map;

/** Counts what one manager keeps for callers. */
public final class Counts {
    private Counts() {}

    /**
     * Counts what it keeps.
     *
     * @param engine the manager
     * @return names and numbers
     */
    public static Map<String, Integer> of(Engine engine) {
        var pipelines = engine.resources().router().pipelines();
        return Map.of(
                "queue", pipelines.stream().mapToInt(Pipeline::queued).sum(),
                "slots", pipelines.stream().mapToInt(Pipeline::running).sum(),
                "attempts", engine.pending(),
                "flights", engine.flights().count(),
                "waiting", engine.resources().subscription().waiting(),
                "owed", engine.context().owed(),
                "holds", engine.timer().holds(),
                "sessions", engine.resources().sessions().count());
    }
}
