package dev.serverlock.internal.attempt;

import dev.serverlock.LockException;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.command.Stored;
import dev.serverlock.internal.connection.Connections;
import dev.serverlock.internal.hold.Session;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.spi.Connection;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Sends the copies of one attempt from its caller's thread, and cancels what the server may have granted. */
final class Sender extends Copies {
    /**
     * How long an interrupted caller waits for the cancellation of its attempt, which then continues in the background.
     */
    private static final long FAREWELL = 100 * Clock.MILLISECOND;

    /** A session gives up its connection to the server after these replies. */
    private static final Set<String> ROLE_CHANGED = Set.of("READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED");
    /** After these replies, another server may have the key. */
    private static final Set<String> MOVED = Set.of("MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN");

    Connection connection;
    Session session;
    boolean isAlone; // the connection is the lone wait's: see Blocking
    private boolean isPooled; // the connection is one of the shared ones
    private boolean hasLooked; // for a stored result
    private Stored before; // the one that was stored before the attempt waited; null if that is not known

    Sender(Resources resources, Request request) {
        super(resources, request);
    }

    /** The error of an attempt that got nil. */
    LockException refused() throws InterruptedException {
        return Exchange.result(
                refused(Exchange.blocking(words -> resources.router().call(request.key(), words, context.timeout()))));
    }

    /** Throws if the caller was interrupted or the manager is closed. */
    void over() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("the attempt to get the lock " + request.name() + " was interrupted");
        }
        context.checkOpen(request.name());
    }

    /** Sends a copy, and further copies after temporary errors. Returns null if the lock is not granted. */
    Grant ask(long wait, String channel, long timeout) throws InterruptedException {
        long span = wait;
        while (true) {
            long sent = context.now();
            Object reply;
            try {
                reply = isPortable
                        ? Exchange.result(byScript(Exchange.blocking(words -> exchange(words, timeout)), span, channel))
                        : exchange(request.acquire(idBytes, span, channel), timeout);
            } catch (ReplyError | ConnectionLost error) {
                if (isAboutNotify(error, channel)) {
                    noNotify = true;
                    return Grant.NO_NOTIFY;
                }
                leaveAfter(error);
                span = span > 0 ? Math.max(Clock.MILLISECOND, Math.min(span, left())) : 0;
                continue;
            }
            Grant grant = granted(reply, sent);
            if (isPortable && request.wantsResult() && !hasLooked && (grant == null || grant == Grant.WAITING)) {
                hasLooked = true;
                before = stored();
            }
            return grant;
        }
    }

    /** Adds the result to a grant if one was stored while the attempt waited without the module. */
    Grant withResult(Grant grant) throws InterruptedException {
        if (!grant.isPortable() || before == null) {
            return grant;
        }
        Stored now = stored();
        return now != null && now.isNewerThan(before) ? grant.withResult(now.value()) : grant;
    }

    /** Returns null if there cannot be one, or the server does not say. */
    private Stored stored() throws InterruptedException {
        byte[][] words = Stored.get(request);
        if (words == null) {
            return null;
        }
        over();
        try {
            return Stored.read(resources.router().call(request.key(), words, context.timeout()));
        } catch (ReplyError | ConnectionLost error) {
            return null; // each caller computes
        }
    }

    /** Sends one command; throws ReplyError or ConnectionLost. */
    private Object exchange(byte[][] words, long timeout) throws InterruptedException {
        over();
        if (usesConnection && !hasConnection()) {
            takeConnection();
        }
        mayBeKnown = true;
        return connection == null && session == null
                ? resources.router().call(request.key(), words, timeout)
                : callOnConnection(words, timeout);
    }

    boolean hasConnection() {
        return session != null ? session.isOpen() : connection != null && connection.isOpen();
    }

    /** Sends one command over the attempt's own connection; throws ReplyError or ConnectionLost. */
    Object callOnConnection(byte[][] words, long timeout) throws InterruptedException {
        return session != null ? session.call(words, timeout) : Connections.call(connection, words, timeout);
    }

    /**
     * Pauses before the next copy, or throws the error if there is no next copy. The attempt leaves the connection of
     * the previous copy. If it is shared, that copy may still arrive, and the next one uses another connection. Both
     * have the same ID, so they get only one grant. {@link #settleOverdue} handles replies that arrive after the
     * attempt has ended.
     */
    void leaveAfter(RuntimeException error) throws InterruptedException {
        leaveConnection(error);
        pause(error);
    }

    /**
     * The server may no longer have the key. A session's connection may have other locks, so it is not closed for that.
     */
    private void leaveConnection(RuntimeException error) {
        String code = error instanceof ReplyError reply ? reply.code() : "";
        boolean isUnknownCommand = error instanceof ReplyError reply && reply.isUnknownCommand();
        if (connection != null && !isUnknownCommand && !(error instanceof LockException)) {
            connection.close();
        } else if (session != null && ROLE_CHANGED.contains(code)) {
            session.close();
        } else if (session != null && MOVED.contains(code)) {
            giveBackConnection();
        }
    }

    /** Like leaveAfter, for an error on another connection. */
    void pause(RuntimeException error) throws InterruptedException {
        context.pause(pauseAfter(error));
        over();
    }

    /** Takes a connection for the whole attempt: that of its thread's session, or one of the few shared ones. */
    void takeConnection() throws InterruptedException {
        giveBackConnection();
        if (request.isSession()) {
            session = resources.sessions().take(request.key());
            return;
        }
        if (isAlone) {
            connection = resources.blocking().take(request.key());
            return;
        }
        long patience = request.waiting() > 0 ? Math.max(0, left()) : context.timeout();
        connection = resources.connections().take(request.key(), patience);
        if (connection == null) {
            over();
            if (request.waiting() > 0) {
                throw timedOut();
            }
            throw new ConnectionLost("no connection came free within " + patience / Clock.MILLISECOND + " ms");
        }
        isPooled = true;
    }

    void giveBackConnection() {
        if (session != null) {
            resources.sessions().giveBack(session);
            session = null;
        }
        Connection back = connection;
        connection = null;
        if (back != null) {
            if (isPooled) {
                resources.connections().giveBack(back);
            } else if (!isAlone) {
                back.close();
            }
        }
        isPooled = false;
    }

    /** Returns the connection, and cancels what the server may have granted. */
    void abandon(boolean isReachable, boolean isInterrupted) {
        boolean mayStillRun = isUnsure || isInterrupted && connection != null;
        giveBackConnection();
        if (!mayBeKnown) {
            return;
        }
        settleOverdue(() -> true);
        if (!isInterrupted) {
            cancel(isReachable, mayStillRun);
            return;
        }
        CompletableFuture<Void> done =
                CompletableFuture.runAsync(() -> cancel(isReachable, mayStillRun), context.debts());
        try {
            done.get(FAREWELL, TimeUnit.NANOSECONDS);
        } catch (InterruptedException again) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException goesOn) {
            // The cancellation continues in the background.
        }
    }

    /** Cancels at once if the server is reachable, otherwise in the background. */
    private void cancel(boolean isReachable, boolean mayStillRun) {
        if (isReachable) {
            long patience = patience();
            cancel(Exchange.blocking(words -> resources.router().call(request.key(), words, patience)), mayStillRun);
        } else {
            cancelLater(idBytes, mayStillRun);
        }
    }
}
