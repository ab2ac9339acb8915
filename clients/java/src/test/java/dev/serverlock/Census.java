package dev.serverlock;

import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToIntFunction;

/** What managers keep for callers. */
public final class Census {
    private Census() {}

    /**
     * Counts it.
     *
     * @param managers whose
     * @return names and numbers
     */
    public static Map<String, Object> of(Collection<Locks> managers) {
        Map<String, Object> found = new TreeMap<>();
        found.put(
                "queue",
                sum(
                        managers,
                        it -> it.router.pipelines().stream()
                                .mapToInt(Pipeline::queued)
                                .sum()));
        found.put(
                "slots",
                sum(
                        managers,
                        it -> it.router.pipelines().stream()
                                .mapToInt(Pipeline::running)
                                .sum()));
        found.put("waiting", sum(managers, it -> it.subscription.waiting()));
        found.put("owed", sum(managers, it -> it.debts.getQueue().size() + it.debts.getActiveCount()));
        found.put("holds", sum(managers, it -> it.timer.holds()));
        found.put(
                "threads",
                Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("serverlock-"))
                        .count());
        return found;
    }

    private static int sum(Collection<Locks> managers, ToIntFunction<Engine> count) {
        return managers.stream().mapToInt(it -> count.applyAsInt(it.engine)).sum();
    }
}
