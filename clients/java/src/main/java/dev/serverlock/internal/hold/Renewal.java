package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Node;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Sends an EXTEND for each hold that is due. The EXTENDs for one server are sent together, and no server delays
 * another. However many holds there are, each server has at most two threads, which end when nothing is due.
 * Thread-safe.
 */
public final class Renewal {
    /** The number of connections that a Pipeline uses. */
    private static final int THREADS = 2;

    private static final int MOST_AT_ONCE = 128;
    private static final int MOST_NODES = 1000;
    private static final long LEAST_TIMEOUT = 50 * Clock.MILLISECOND;

    private final Context context;
    private final Router router;
    private final Commands commands;
    private final Timer timer;
    private final Map<Node, Due> dues = new ConcurrentHashMap<>();

    public Renewal(Context context, Router router, Commands commands, Timer timer) {
        this.context = context;
        this.router = router;
        this.commands = commands;
        this.timer = timer;
    }

    /** The holds that are due on one server. Its own monitor guards them. */
    private static final class Due {
        final Node node;
        final Deque<Hold> holds = new ArrayDeque<>();
        int threads;

        Due(Node node) {
            this.node = node;
        }

        /** Returns the next holds to renew together. If there are none, the calling thread must end. */
        synchronized List<Hold> next() {
            List<Hold> some = new ArrayList<>();
            while (!holds.isEmpty() && some.size() < MOST_AT_ONCE) {
                some.add(holds.poll());
            }
            if (some.isEmpty()) {
                threads--;
            }
            return some;
        }

        /** Adds holds, and returns how many more threads to start. */
        synchronized int add(List<Hold> more) {
            holds.addAll(more);
            int wanted = Math.min(THREADS, (holds.size() + MOST_AT_ONCE - 1) / MOST_AT_ONCE);
            int missing = Math.max(0, wanted - threads);
            threads += missing;
            return missing;
        }

        /** Call this if a thread could not be started. Returns the holds that no other thread will renew. */
        synchronized List<Hold> withoutThread() {
            threads--;
            List<Hold> left = threads > 0 ? List.of() : new ArrayList<>(holds);
            holds.removeAll(left);
            return left;
        }
    }

    public void begin(List<Hold> holds) {
        Map<Node, List<Hold>> byNode = new HashMap<>();
        for (Hold hold : holds) {
            try {
                byNode.computeIfAbsent(router.node(hold.request().key()), node -> new ArrayList<>())
                        .add(hold);
            } catch (ReplyError | ConnectionLost error) {
                failed(hold, error);
            }
        }
        if (dues.size() > MOST_NODES) {
            dues.values().removeIf(due -> due.threads == 0); // servers that are gone
        }
        byNode.forEach((node, some) -> {
            Due due = dues.computeIfAbsent(node, Due::new);
            for (int missing = due.add(some); missing > 0; missing--) {
                start(due);
            }
        });
    }

    private void start(Due due) {
        try {
            context.thread("serverlock-renewal", () -> run(due)).start();
        } catch (OutOfMemoryError noThread) {
            due.withoutThread().forEach(hold -> failed(hold, new ConnectionLost("no thread could be started")));
        }
    }

    private void run(Due due) {
        for (List<Hold> some = due.next(); !some.isEmpty(); some = due.next()) {
            List<Hold> holds = some.stream().filter(hold -> !hold.isOver()).toList();
            try {
                if (holds.size() == 1) {
                    renewAlone(holds.get(0));
                } else if (!holds.isEmpty()) {
                    renewTogether(due.node, holds);
                }
            } catch (RuntimeException | OutOfMemoryError error) {
                context.warn("renewing locks failed", error);
                holds.forEach(hold -> failed(hold, new ConnectionLost(error.toString())));
            }
        }
    }

    private void renewTogether(Node node, List<Hold> due) {
        long sent = context.now();
        long timeout =
                due.stream().mapToLong(hold -> patience(hold, sent)).min().orElse(context.timeout());
        List<Hold> holds = due.stream().filter(hold -> extending(hold, sent)).toList();
        List<Call> calls = holds.stream().map(hold -> new Call(words(hold))).toList();
        if (calls.isEmpty()) {
            return;
        }
        RuntimeException failure = null;
        try {
            router.exchange(node, calls, timeout);
        } catch (ReplyError | ConnectionLost error) {
            failure = error;
        }
        for (int i = 0; i < calls.size(); i++) {
            Call call = calls.get(i);
            Hold hold = holds.get(i);
            if (failure != null) {
                notDone(hold, failure, sent);
            } else if (call.error != null
                    && Errors.read(call.error) instanceof ReplyError reply
                    && (reply.code().equals("MOVED") || reply.code().equals("ASK"))) {
                hold.extended(sent, hold.request().lease(), false);
                renewAlone(hold); // this follows the redirection
            } else {
                settle(hold, call, sent);
            }
        }
    }

    private void renewAlone(Hold hold) {
        long sent = context.now();
        if (!extending(hold, sent)) {
            return;
        }
        Call call = new Call(words(hold));
        try {
            router.send(hold.request().key(), call, patience(hold, sent));
        } catch (ReplyError | ConnectionLost error) {
            notDone(hold, error, sent);
            return;
        }
        settle(hold, call, sent);
    }

    private static boolean extending(Hold hold, long sent) {
        return hold.extending(sent, hold.request().lease());
    }

    private byte[][] words(Hold hold) {
        return commands.extendWords(hold, hold.request().lease());
    }

    private long patience(Hold hold, long now) {
        return Math.max(LEAST_TIMEOUT, Math.min(context.timeout(), (hold.lostAt() - now) / 2));
    }

    private void settle(Hold hold, Call call, long sent) {
        if (call.error != null && call.late != null) {
            // The next copy uses another connection. A late copy also extends the lease, and never shortens it.
            call.late.whenComplete((reply, error) -> renewed(hold, error == null ? reply : null, sent));
            failed(hold, Errors.read(call.error));
            return;
        }
        try {
            renewed(hold, Errors.result(call), sent);
        } catch (ReplyError | ConnectionLost error) {
            notDone(hold, error, sent);
        }
    }

    /** reply: null if the result is unknown. */
    private void renewed(Hold hold, Object reply, long sent) {
        boolean isDone = Long.valueOf(1).equals(reply);
        hold.extended(sent, hold.request().lease(), isDone);
        hold.renewalEnds();
        if (hold.isOver()) {
            return;
        }
        if (isDone) {
            timer.add(hold);
        } else if (reply != null) {
            hold.taken();
        }
    }

    private void notDone(Hold hold, RuntimeException error, long sent) {
        hold.extended(sent, hold.request().lease(), false);
        failed(hold, error);
    }

    private void failed(Hold hold, RuntimeException error) {
        hold.renewalEnds();
        if (hold.isOver()) {
            return;
        }
        commands.fallsBack(hold, error);
        context.warn("renewing the lock " + hold.request().name() + " failed; trying again", error);
        long pause = Math.max(hold.request().lease() / 20, 10 * Clock.MILLISECOND);
        timer.again(hold, Math.min(hold.lostAt(), context.now() + pause));
    }
}
