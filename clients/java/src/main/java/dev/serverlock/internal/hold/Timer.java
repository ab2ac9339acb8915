package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import java.util.ArrayList;
import java.util.List;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** One timer for all of a manager's holds, and for later work. Its thread ends after some idle time. Thread-safe. */
public final class Timer {
    private static final long IDLE = 5 * Clock.SECOND;
    private static final int SWEEPS_AFTER = 1000;

    private final Context context;
    private final Consumer<List<Hold>> renewals;
    private final PriorityQueue<Entry> entries = new PriorityQueue<>();
    private long count;
    private int dead;
    private Thread thread;
    private long wakesAt;
    private CompletableFuture<Void> changed = new CompletableFuture<>();

    /** renewals: called with the holds whose renewal is due, in the timer's thread. */
    public Timer(Context context, Consumer<List<Hold>> renewals) {
        this.context = context;
        this.renewals = renewals;
    }

    /** A hold to check, or work to do. */
    private record Entry(long at, long number, Hold hold, Runnable work) implements Comparable<Entry> {
        @Override
        public int compareTo(Entry other) {
            return Long.compare(at, other.at);
        }
    }

    public void add(Hold hold) {
        again(hold, hold.renewAt());
    }

    /** Checks a hold at that time. Only its newest entry counts. */
    synchronized void again(Hold hold, long at) {
        hold.entry = ++count;
        push(new Entry(at, count, hold, null));
    }

    synchronized void later(long at, Runnable work) {
        push(new Entry(at, ++count, null, work));
    }

    /**
     * Call this when a hold has ended before its entry was due. Such entries are removed once they are the majority.
     */
    public synchronized void forget() {
        dead++;
        if (dead > SWEEPS_AFTER && dead * 2 > entries.size() || context.isClosed()) {
            sweep();
        }
    }

    /** The caller must hold the monitor. */
    private void sweep() {
        dead = 0;
        entries.removeIf(entry -> entry.hold != null && (entry.number != entry.hold.entry || entry.hold.isOver()));
        if (entries.isEmpty()) {
            changed.complete(null); // a closed manager's thread ends with the last hold
        }
    }

    /** How many holds the timer has. */
    public synchronized int holds() {
        return (int) entries.stream()
                .filter(entry -> entry.hold != null && entry.number == entry.hold.entry && !entry.hold.isOver())
                .count();
    }

    /** Stops renewals. Losses are still reported. */
    public synchronized void close() {
        entries.removeIf(entry -> entry.hold == null);
        sweep();
        changed.complete(null);
    }

    /** The caller must hold the monitor. */
    private void push(Entry entry) {
        if (entry.hold == null && context.isClosed()) {
            return;
        }
        entries.add(entry);
        if (thread == null) {
            thread = context.thread("serverlock-timer", this::run);
            thread.start();
        } else if (entry.at < wakesAt) {
            changed.complete(null);
        }
    }

    private void run() {
        List<Entry> due = new ArrayList<>();
        while (awaitDue(due)) {
            try {
                handle(due);
            } catch (RuntimeException | OutOfMemoryError error) {
                // For example, if no thread could be started. Other locks are still renewed.
                context.warn("renewing locks failed", error);
            }
            due.clear();
        }
    }

    private void handle(List<Entry> due) {
        List<Hold> dueForRenewal = new ArrayList<>();
        for (Entry entry : due) {
            if (entry.hold == null) {
                entry.work.run();
                continue;
            }
            Hold.Due found = entry.hold.due();
            if (found.goesOn()) {
                again(entry.hold, found.lostAt()); // before the renewal, whose result may replace this entry
                if (found.renews()) {
                    dueForRenewal.add(entry.hold);
                }
            }
        }
        renewals.accept(dueForRenewal);
    }

    /** Waits for due entries. Returns false if there were none for a while, or the manager is closed. */
    private boolean awaitDue(List<Entry> due) {
        long idleSince = context.now();
        while (true) {
            CompletableFuture<Void> change;
            long span;
            synchronized (this) {
                long now = context.now();
                take(due, now);
                if (!due.isEmpty()) {
                    wakesAt = 0;
                    return true;
                }
                if (entries.isEmpty() && (context.isClosed() || now - idleSince >= IDLE)) {
                    thread = null;
                    return false;
                }
                long next = entries.isEmpty() ? idleSince + IDLE : entries.peek().at;
                // The clock may count time that a wait does not count.
                wakesAt = Math.min(Clock.after(now, context.longestSleep()), next);
                change = changed = new CompletableFuture<>();
                span = wakesAt - now;
            }
            try {
                context.await(change, span);
            } catch (InterruptedException stray) {
                // No code of this package interrupts this thread.
            }
        }
    }

    /** Takes the due entries. The caller must hold the monitor. */
    private void take(List<Entry> due, long now) {
        while (!entries.isEmpty() && entries.peek().at <= now) {
            Entry entry = entries.poll();
            if (entry.hold == null || entry.number == entry.hold.entry) {
                due.add(entry);
            }
        }
    }
}
