package dev.serverlock.internal.attempt;

import dev.serverlock.LockException;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Portable;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.connection.Connections;
import dev.serverlock.internal.hold.Debts;
import dev.serverlock.internal.hold.Session;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * Sends the copies of one attempt until one gets a reply, and cancels what the server may have granted. All copies have
 * the same ID, so they get at most one grant.
 */
final class Sender {
    /**
     * How long an interrupted caller waits for the cancellation of its attempt, which then continues in the background.
     */
    private static final long FAREWELL = 100 * Clock.MILLISECOND;

    private static final long RESEND = 5 * Clock.SECOND;
    /** A session gives up its connection to the server after these replies. */
    private static final Set<String> ROLE_CHANGED = Set.of("READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED");
    /** After these replies, another server may have the key. */
    private static final Set<String> MOVED = Set.of("MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN");

    /** A copy without a reply may still run after this. Unlike the module, a script does not block the ID. */
    private static final long ONCE_MORE = 2 * Clock.SECOND;

    private static final long SHORTEST_PAUSE = 10 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLISECOND;

    private final Context context;
    private final Resources resources;
    final Request request;
    String id;
    byte[] idBytes;
    final long began;

    Connection connection;
    Session session;
    boolean isAlone; // the connection is the lone wait's: see Blocking
    boolean usesConnection;
    boolean mayBeKnown; // the server may know the attempt
    boolean wasQueued;
    boolean isUnsure; // one of its copies got no reply
    boolean isPortable;
    boolean noNotify;
    /** Without news, a waiting attempt is resent after this long. */
    long span = RESEND;

    private int tries;
    private boolean isPooled; // the connection is one of the shared ones
    private final List<CompletableFuture<Object>> overdue = new ArrayList<>(0); // replies that may still arrive

    Sender(Resources resources, Request request) {
        this.resources = resources;
        context = resources.context();
        this.request = request;
        began = context.now();
        drawId();
        usesConnection = request.needsConnection();
    }

    private void drawId() {
        id = Long.toString(ThreadLocalRandom.current().nextLong(1, 1_000_000_000_000_000_000L));
        idBytes = Words.bytes(id);
    }

    long left() {
        return request.waiting() == Clock.NEVER ? Clock.NEVER : request.waiting() - (context.now() - began);
    }

    LockException timedOut() {
        return Errors.timedOut(request.name(), context.now() - began);
    }

    /** The error of an attempt that got nil. After RECOVER, it says if the lock is free. */
    LockException refused() throws InterruptedException {
        if (request.waiting() > 0) {
            return timedOut();
        }
        return request.isRecovery() && isFree()
                ? Errors.nothingToRecover(request.name())
                : Errors.refused(request.name());
    }

    private boolean isFree() throws InterruptedException {
        Portable.Send send = words -> resources.router().call(request.key(), words, context.timeout());
        try {
            Object reply = isPortable ? resources.portable().info(send, request) : send.send(request.info());
            return Words.text(Words.field(reply, "state")).equals("free");
        } catch (ReplyError | ConnectionLost unknown) { // this user may not ask, for example
            return false;
        }
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
                        ? byScript(span, channel, timeout)
                        : exchange(request.acquire(idBytes, span, channel), timeout);
            } catch (ReplyError | ConnectionLost error) {
                if (channel != null
                        && !isPortable
                        && !resources.subscription().hasWorked()
                        && error instanceof ReplyError refusal
                        && !refusal.isUnknownCommand()
                        && (refusal.code().equals("ERR") || refusal.code().equals("NOPERM"))) {
                    noNotify = true;
                    return Grant.NO_NOTIFY;
                }
                pauseAfter(error);
                span = span > 0 ? Math.max(Clock.MILLISECOND, Math.min(span, left())) : 0;
                continue;
            }
            tries = 0; // a reply resets the count
            if (!isPortable && resources.module().found()) {
                resources.subscription().sendAgain(); // attempts in the script's queue move to the module's
            }
            return granted(reply, sent);
        }
    }

    private Object byScript(long wait, String channel, long timeout) throws InterruptedException {
        // An attempt that gets no messages never overtakes a queue, so it would wait forever.
        boolean isAlone = request.waiting() > 0 && !resources.subscription().isUsable();
        return resources
                .portable()
                .acquire(words -> exchange(words, timeout), request, idBytes, wait, channel, isAlone);
    }

    private Grant granted(Object reply, long sent) {
        if (reply == null) {
            return null;
        }
        Grant grant = Grant.read(reply, sent, request.name(), isPortable);
        if (grant == Grant.WAITING) {
            wasQueued = true;
            long pause = Grant.pause(reply);
            span = pause < 0 ? RESEND : pause * Clock.MILLISECOND;
            if (!isPortable) {
                resources.subscription().worked();
            }
        }
        return grant;
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
    void pauseAfter(RuntimeException error) throws InterruptedException {
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

    /** Like pauseAfter, for an error on another connection. */
    void pause(RuntimeException error) throws InterruptedException {
        if (error instanceof LockException) {
            throw error;
        }
        tries++;
        if (error instanceof ConnectionLost lost && lost.late() != null) {
            overdue.add(lost.late());
        }
        if (error instanceof ReplyError reply && reply.isUnknownCommand()) {
            throw error;
        }
        if (resources.router().isCluster() && (usesConnection || error instanceof ConnectionLost)) {
            resources.router().refresh();
        }
        isUnsure |= error instanceof ConnectionLost;
        if (!Errors.isTransient(error) || left() <= 0 && tries >= 2) {
            if (!isUnsure && !wasQueued) {
                mayBeKnown = false; // a command that fails changes nothing
            }
            throw error;
        }
        long pause = SHORTEST_PAUSE;
        if (request.waiting() > 0) {
            long longest = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE << Math.min(tries, 6));
            pause = Math.min(longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2), Math.max(0, left()));
        }
        context.pause(pause);
        over();
    }

    /** Once an overdue copy gets its reply or fails, cancels the attempt if the grant is unwanted. */
    void settleOverdue(BooleanSupplier isUnwanted) {
        byte[] id = idBytes;
        for (CompletableFuture<Object> late : overdue) {
            late.whenComplete((reply, error) -> {
                if (isUnwanted.getAsBoolean()) {
                    cancel(id, isPortable, false, error != null);
                }
            });
        }
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
        Runnable cancel = () -> cancel(idBytes, isPortable, isReachable, mayStillRun);
        if (!isInterrupted) {
            cancel.run();
            return;
        }
        CompletableFuture<Void> done = CompletableFuture.runAsync(cancel, context.debts());
        try {
            done.get(FAREWELL, TimeUnit.NANOSECONDS);
        } catch (InterruptedException again) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException goesOn) {
            // The cancellation continues in the background.
        }
    }

    /**
     * Gives up the place in the script's queue, in the background. A late cancel must not release a lock that the
     * attempt gets by polling, so the attempt continues with a new ID. A place in the module's queue is kept.
     */
    void leaveQueue() {
        if (!isPortable || !wasQueued && !isUnsure) {
            return;
        }
        settleOverdue(() -> true);
        overdue.clear();
        cancel(idBytes, true, false, isUnsure);
        drawId();
        mayBeKnown = false;
        wasQueued = false;
        isUnsure = false;
    }

    /** Cancels at once if the server is reachable, otherwise in the background. */
    private void cancel(byte[] id, boolean isPortable, boolean isReachable, boolean mayStillRun) {
        Debts.Debt debt = () -> {
            if (isPortable) {
                resources
                        .portable()
                        .cancel(request, id, resources.subscription().channel());
                return;
            }
            for (byte[] key : request.keys()) {
                byte[][] words =
                        new Words(3).add("LOCK.CANCEL").add(key).add(id).done();
                resources.router().call(key, words, resources.debts().patience());
            }
        };
        long patience = Math.max(request.lease() + 2 * Clock.SECOND, context.timeout());
        if (isPortable && mayStillRun) {
            resources.debts().oweLater(context.now() + ONCE_MORE, patience, debt);
        }
        if (isReachable) {
            try {
                debt.pay();
                return;
            } catch (ReplyError | ConnectionLost error) {
                if (!Errors.isTransient(error)) {
                    return; // the server has replied, or does not let this user in
                }
            }
        }
        resources.debts().owe(context.now() + patience, debt);
    }
}
