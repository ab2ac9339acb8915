package dev.serverlock;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.Node;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * One timer for all holds of a manager, and for debts: what could not be given back at once, and is tried until it
 * works. Its
 * thread ends when there was nothing to do for a while.
 */
final class Timer {
    private static final long DEBT_PAUSE = 250 * Clock.MILLISECOND;
    private static final long IDLE = 5 * Clock.SECOND;
    private static final long LEAST_TIMEOUT = 50 * Clock.MILLISECOND;
    private static final int SWEEPS_AFTER = 1000;
    private static final int MOST_AT_ONCE = 128;

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

    /** Something to give back; throws Said or Broken. */
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
        engine.workers.execute(() -> {
            try {
                debt.pay();
            } catch (Said | Broken error) {
                boolean isHopeless = error instanceof Broken broken && broken.isFinal;
                if (!isHopeless && !engine.isClosed() && Clock.now() < until) {
                    later(Clock.now() + DEBT_PAUSE, () -> owe(until, debt));
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
        renew(renewals);
    }

    /** Gives what is due; false: there was nothing to do for a while, or the manager is closed. */
    private synchronized boolean awaitDue(List<Entry> due) {
        long idleSince = Clock.now();
        while (!engine.isClosed() || !entries.isEmpty()) {
            long now = Clock.now();
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
            wakesAt = entries.isEmpty() ? idleSince + IDLE : entries.peek().at;
            try {
                wait(Math.min(3_600_000, (wakesAt - now) / Clock.MILLISECOND + 1));
            } catch (InterruptedException stopped) {
                break; // nobody does that to this thread
            }
            wakesAt = 0;
        }
        thread = null;
        return false;
    }

    /** Renewals for one server go together, and no server waits for another. */
    private void renew(List<Hold> holds) {
        if (holds.size() == 1) {
            engine.workers.execute(() -> renewAlone(holds.get(0)));
            return;
        }
        Map<Node, List<Hold>> byNode = new HashMap<>();
        for (Hold hold : holds) {
            try {
                byNode.computeIfAbsent(engine.router.node(hold.request.key()), node -> new ArrayList<>()).add(hold);
            } catch (Said | Broken error) {
                failed(hold, error);
            }
        }
        byNode.forEach((node, all) -> {
            for (int from = 0; from < all.size(); from += MOST_AT_ONCE) {
                List<Hold> some = all.subList(from, Math.min(all.size(), from + MOST_AT_ONCE));
                engine.workers.execute(() -> renewTogether(node, some));
            }
        });
    }

    private void renewTogether(Node node, List<Hold> holds) {
        long sent = Clock.now();
        long timeout = holds.stream().mapToLong(hold -> patience(hold, sent)).min().orElse(engine.timeout);
        List<Call> calls = holds.stream().map(hold -> new Call(words(hold, sent))).toList();
        RuntimeException failure = null;
        try {
            engine.router.exchange(node, calls, timeout);
        } catch (Said | Broken error) {
            failure = error;
        }
        for (int i = 0; i < calls.size(); i++) {
            Call call = calls.get(i);
            Hold hold = holds.get(i);
            if (failure != null) {
                notDone(hold, failure, sent);
            } else if (call.error != null && Judge.read(call.error) instanceof Said said
                    && (said.code.equals("MOVED") || said.code.equals("ASK"))) {
                hold.extended(sent, hold.request.lease, false);
                renewAlone(hold); // that one follows it
            } else {
                settle(hold, call, sent);
            }
        }
    }

    private void renewAlone(Hold hold) {
        long sent = Clock.now();
        Call call = new Call(words(hold, sent));
        try {
            engine.router.send(hold.request.key(), call, patience(hold, sent));
        } catch (Said | Broken error) {
            notDone(hold, error, sent);
            return;
        }
        settle(hold, call, sent);
    }

    private byte[][] words(Hold hold, long sent) {
        hold.extending(sent, hold.request.lease);
        return engine.extendWords(hold, hold.request.lease);
    }

    private long patience(Hold hold, long now) {
        return Math.max(LEAST_TIMEOUT, Math.min(engine.timeout, (hold.lostAt() - now) / 2));
    }

    private void settle(Hold hold, Call call, long sent) {
        if (call.error != null && call.late != null) {
            // No second copy as long as this one is on its way.
            call.late.whenComplete((reply, error) -> {
                if (error == null) {
                    renewed(hold, reply, sent);
                } else {
                    notDone(hold, Judge.read(error), sent);
                }
            });
            return;
        }
        try {
            renewed(hold, Judge.result(call), sent);
        } catch (Said | Broken error) {
            notDone(hold, error, sent);
        }
    }

    private void renewed(Hold hold, Object reply, long sent) {
        boolean isDone = Long.valueOf(1).equals(reply);
        hold.extended(sent, hold.request.lease, isDone);
        hold.renewalEnds();
        if (hold.isOver()) {
            return;
        }
        if (isDone) {
            add(hold);
        } else {
            hold.taken();
        }
    }

    private void notDone(Hold hold, RuntimeException error, long sent) {
        hold.extended(sent, hold.request.lease, false);
        failed(hold, error);
    }

    private void failed(Hold hold, RuntimeException error) {
        hold.renewalEnds();
        if (hold.isOver()) {
            return;
        }
        engine.missed(hold, error);
        engine.warn("renewing the lock " + hold.request.name + " failed, and is tried again", error);
        long pause = Math.max(hold.request.lease / 20, 10 * Clock.MILLISECOND);
        again(hold, Math.min(hold.lostAt(), Clock.now() + pause));
    }
}
