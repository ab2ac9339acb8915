package dev.serverlock;

import dev.serverlock.internal.Counts;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;

/** Counts what managers keep for callers, and their threads. */
public final class Census {
    private Census() {}

    /**
     * Counts what they keep.
     *
     * @param managers the managers
     * @return names and numbers, added up
     */
    public static Map<String, Object> of(Collection<Locks> managers) {
        Map<String, Integer> sums = new TreeMap<>();
        managers.forEach(
                locks -> Counts.of(locks.engine).forEach((name, count) -> sums.merge(name, count, Integer::sum)));
        Map<String, Object> found = new TreeMap<>(sums);
        found.put("threads", threads());
        return found;
    }

    /** {@return the number of threads of all managers in this process} */
    public static long threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("serverlock-"))
                .count();
    }
}
