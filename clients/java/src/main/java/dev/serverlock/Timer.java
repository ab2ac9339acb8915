package dev.serverlock;

import java.util.ArrayList;
import java.util.List;
import java.util.PriorityQueue;

/**
 * One timer for all holds of a manager, and for debts: what could not be given back at once, and is tried until it
 * works. Its thread ends when there was nothing to do for a while.
 */
final class Timer {
    private static final long DEBT_PAUSE = 250 * Clock.MILLISECOND;
    private static final long IDLE = 5 * Clock.SECOND;
    /** After a suspend of the machine it may have slept too long, so it never sleeps for long. */
    private static final long LONGEST_SLEEP = Clock.SECOND;
    private static final int SWEEPS_AFTER = 1000;

    private final Engine engine;
    private final PriorityQueue<Entry> entries = new PriorityQueue<>();
    private long count;
    private int dead;
    private Thread thread;
    private long wakesAt;

    Timer(Engine engine) {
        this.engine = engine;
    }

    /** A hold to look at, or work to do. */
    private record Entry(long at, long number, Hold hold, Runnable work) implements Comparable<Entry> {
        @Override
        public int compareTo(Entry other) {
            return Long.compare(at, other.at);
        }
    }

    /** Something to give back; throws ReplyError or ConnectionLost. */
    interface Debt {
        void pay();
    }

    void add(Hold hold) {
        again(hold, hold.renewAt());
    }

    /** Looks at a hold at that time. Only its newest entry counts. */
    synchronized void again(Hold hold, long at) {
        hold.entry = ++count;
        push(new Entry(at, count, hold, null));
    }

    synchronized void later(long at, Runnable work) {
        push(new Entry(at, ++count, null, work));
    }

    /** Tries to give something back in the background until it works, or that time has come. */
    void owe(long until, Debt debt) {
        engine.debts.execute(() -> {
            try {
                debt.pay();
            } catch (ReplyError | ConnectionLost error) {
                if (Errors.mayPass(error) && !engine.isClosed() && engine.clock.now() < until) {
                    later(engine.clock.now() + DEBT_PAUSE, () -> owe(until, debt));
                }
            }
        });
    }

    /** A hold has ended before its entry was due. Old entries are swept when they are most of them. */
    synchronized void forget() {
        dead++;
        if (dead > SWEEPS_AFTER && dead * 2 > entries.size() || engine.isClosed()) {
            sweep();
        }
    }

    /** The caller has the monitor. */
    private void sweep() {
        dead = 0;
        entries.removeIf(entry -> entry.hold != null && (entry.number != entry.hold.entry || entry.hold.isOver()));
        if (entries.isEmpty()) {
            notifyAll(); // the thread of a manager that is closed ends with the last hold
        }
    }

    /** How many it looks after. */
    synchronized int holds() {
        return (int) entries.stream()
                .filter(entry -> entry.hold != null && entry.number == entry.hold.entry && !entry.hold.isOver())
                .count();
    }

    /** Holds are not renewed any more; that they are lost then is still told. */
    synchronized void close() {
        entries.removeIf(entry -> entry.hold == null);
        sweep();
        notifyAll();
    }

    /** The caller has the monitor. */
    private void push(Entry entry) {
        if (entry.hold == null && engine.isClosed()) {
            return;
        }
        entries.add(entry);
        if (thread == null) {
            thread = engine.thread("serverlock-timer", this::run);
            thread.start();
        } else if (entry.at < wakesAt) {
            notifyAll();
        }
    }

    private void run() {
        List<Entry> due = new ArrayList<>();
        while (awaitDue(due)) {
            try {
                handle(due);
            } catch (RuntimeException | OutOfMemoryError error) {
                // No thread to be had, for example. Other locks are still renewed.
                engine.warn("renewing locks failed", error);
            }
            due.clear();
        }
    }

    private void handle(List<Entry> due) {
        List<Hold> renewals = new ArrayList<>();
        for (Entry entry : due) {
            if (entry.hold == null) {
                entry.work.run();
                continue;
            }
            Hold.Due found = entry.hold.due();
            if (found.goesOn()) {
                again(entry.hold, found.lostAt()); // first: what becomes of the renewal has the last word
                if (found.renews()) {
                    renewals.add(entry.hold);
                }
            }
        }
        engine.renewal.begin(renewals);
    }

    /** Gives what is due; false: there was nothing to do for a while, or the manager is closed. */
    private synchronized boolean awaitDue(List<Entry> due) {
        long idleSince = engine.clock.now();
        while (!engine.isClosed() || !entries.isEmpty()) {
            long now = engine.clock.now();
            while (!entries.isEmpty() && entries.peek().at <= now) {
                Entry entry = entries.poll();
                if (entry.hold == null || entry.number == entry.hold.entry) {
                    due.add(entry);
                }
            }
            if (!due.isEmpty()) {
                return true;
            }
            if (entries.isEmpty() && now - idleSince >= IDLE) {
                break;
            }
            wakesAt = Math.min(now + LONGEST_SLEEP, entries.isEmpty() ? idleSince + IDLE : entries.peek().at);
            try {
                wait((wakesAt - now) / Clock.MILLISECOND + 1);
            } catch (InterruptedException stopped) {
                break; // nobody does that to this thread
            }
            wakesAt = 0;
        }
        thread = null;
        return false;
    }
}
