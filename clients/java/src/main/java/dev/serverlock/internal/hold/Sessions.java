package dev.serverlock.internal.hold;

import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.WatchedConnection;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * The connections of session locks. Those of one thread share one connection to each server, so that the server sees a
 * client that holds one lock and waits for another, and finds deadlocks. Thread-safe.
 *
 * <p>One attempt at a time uses a connection. After an interrupt, its reply is read in the background; meanwhile
 * another attempt of the same thread gets a new connection. A connection is closed with its last lock, and its end
 * loses all of its locks.
 */
public final class Sessions {
    private final Context context;
    private final Router router;
    private final Timer timer;
    private final Map<Thread, List<Session>> byCaller = new HashMap<>();
    private final Map<Hold, Session> byHold = new HashMap<>();

    public Sessions(Context context, Router router, Timer timer) {
        this.context = context;
        this.router = router;
        this.timer = timer;
    }

    /** Takes the thread's session with a key's server, or a new one. It is given to {@link #keep} or giveBack. */
    public Session take(byte[] key) {
        Node node = router.node(key);
        Session session = idle(node);
        if (session == null) {
            session = open(node);
        }
        if (context.isClosed()) { // perhaps since before it was taken
            session.close();
        }
        return session;
    }

    private synchronized Session idle(Node node) {
        for (Session session : byCaller.getOrDefault(Thread.currentThread(), List.of())) {
            if (!session.isTaken && session.node.equals(node) && session.isOpen()) {
                session.isTaken = true;
                return session;
            }
        }
        return null;
    }

    private Session open(Node node) {
        WatchedConnection connection = router.watch(node, context.timeout());
        Session session = new Session(context, node, connection);
        synchronized (this) {
            byCaller.computeIfAbsent(session.caller, caller -> new ArrayList<>(1))
                    .add(session);
        }
        connection.onEnd(() -> ended(session));
        return session;
    }

    /** Adds the lock that an attempt got on its session, and ends its use. */
    public void keep(Session session, Hold hold) {
        synchronized (this) {
            session.holds.add(hold);
            session.isTaken = false;
            byHold.put(hold, session);
        }
        if (!session.isOpen()) { // it ended before the lock was added
            ended(session);
        }
    }

    /** Ends the use of a session by an attempt that got no lock. */
    public void giveBack(Session session) {
        CompletableFuture<Object> pending = session.pending;
        if (pending == null) {
            free(session);
            return;
        }
        // LOCK.CANCEL ends the wait, or the grant. Either way the server replies.
        pending.whenCompleteAsync((reply, error) -> free(session), context.debts());
        timer.later(session.pendingUntil, () -> {
            if (!pending.isDone()) {
                context.debts().execute(session::close);
            }
        });
    }

    private void free(Session session) {
        boolean isUsed;
        synchronized (this) {
            session.pending = null;
            session.isTaken = false;
            isUsed = !session.holds.isEmpty();
            if (!isUsed) {
                forget(session);
            }
        }
        if (!isUsed) {
            session.close();
        }
    }

    /** Removes a lock that has ended; does nothing for a lock without a session. */
    public void drop(Hold hold) {
        Session session;
        boolean isUsed;
        synchronized (this) {
            session = byHold.remove(hold);
            if (session == null) {
                return;
            }
            session.holds.remove(hold);
            isUsed = session.isTaken || !session.holds.isEmpty();
            if (!isUsed) {
                forget(session);
            }
        }
        if (!isUsed) {
            session.close();
        }
    }

    private void ended(Session session) {
        List<Hold> lost;
        synchronized (this) {
            forget(session);
            lost = List.copyOf(session.holds);
            session.holds.clear();
            lost.forEach(byHold::remove);
        }
        lost.forEach(hold -> hold.lose("the connection of its session has closed", true));
    }

    /** The caller must hold the monitor. */
    private void forget(Session session) {
        byCaller.computeIfPresent(session.caller, (caller, sessions) -> {
            sessions.remove(session);
            return sessions.isEmpty() ? null : sessions;
        });
    }

    /** Ends the attempts that are waiting: their connections are closed, and those that have a reply to be read. */
    public void close() {
        List<Session> taken = new ArrayList<>();
        synchronized (this) {
            byCaller.values()
                    .forEach(sessions ->
                            sessions.stream().filter(session -> session.isTaken).forEach(taken::add));
        }
        taken.forEach(Session::close);
    }

    /** How many connections there are. */
    public synchronized int count() {
        return byCaller.values().stream().mapToInt(List::size).sum();
    }
}
