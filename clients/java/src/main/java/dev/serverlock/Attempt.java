package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * One attempt to get a lock. If it fails it leaves nothing behind. It asks first without waiting, over the
 * application's own client. Only if somebody else has the lock does it wait in the queue: see {@link Waiting}.
 */
final class Attempt {
    /**
     * How long an interrupted caller waits until its attempt is cancelled at the server. Then that continues in the
     * background.
     */
    private static final long FAREWELL = 100 * Clock.MILLISECOND;

    private static final long SHORTEST_PAUSE = 10 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLISECOND;

    final Engine engine;
    final Request request;
    final String id;
    final byte[] idBytes;
    final long began;

    Connection connection;
    boolean isAlone; // the connection is that of the lone wait: see Blocking
    boolean usesConnection;
    boolean mayBeKnown; // the server may know of it
    boolean wasQueued;
    boolean isUnsure; // one of its copies got no reply
    boolean isPortable;
    boolean noNotify;

    private int tries;
    private boolean isPooled; // the connection is one of engine.connections
    private final List<CompletableFuture<Object>> overdue = new ArrayList<>(0); // replies that may still come

    Attempt(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
        began = engine.clock.now();
        id = Long.toString(ThreadLocalRandom.current().nextLong(1, 1_000_000_000_000_000_000L));
        idBytes = Words.bytes(id);
        usesConnection = request.needsConnection();
    }

    /** Returns the grant; throws the error that users get. */
    Grant run() throws InterruptedException {
        Grant grant;
        try {
            over();
            grant = get();
            if (request.replicas > 0 || request.isFsync) {
                Confirmation.await(connection, request, engine.timeout);
            }
        } catch (InterruptedException givenUp) {
            if (connection != null) {
                connection.close(); // a late reply must not be read as the reply to another command
            }
            abandon(true, true);
            throw givenUp;
        } catch (RuntimeException error) {
            abandon(!(error instanceof ConnectionLost), false);
            throw Errors.typed(error, request.name, request.wait > 0 ? engine.clock.now() - began : Errors.NO_WAIT);
        }
        if (request.isSession) {
            grant.connection = connection;
            connection = null;
        }
        giveBackConnection();
        return grant;
    }

    private Grant get() throws InterruptedException {
        Waiting waiting = new Waiting(this);
        boolean asksForModule = !engine.isPortable();
        while (true) {
            Grant grant = asksForModule ? byModuleIfLoaded(waiting) : waiting.poll();
            if (grant != null) {
                return grant;
            }
            asksForModule = !asksForModule;
        }
    }

    /** Null: the module is not loaded. */
    private Grant byModuleIfLoaded(Waiting waiting) throws InterruptedException {
        boolean mightBeKnown = mayBeKnown;
        isPortable = false;
        try {
            return byModule(waiting);
        } catch (ReplyError reply) {
            if (!reply.isUnknownCommand() || !engine.missModule(reply)) {
                throw reply;
            }
        }
        mayBeKnown = mightBeKnown; // the server knows of it by script at most
        return null;
    }

    private Grant byModule(Waiting waiting) throws InterruptedException {
        Grant grant;
        if (engine.blocking.isReady() && (grant = waiting.alone()) != Grant.NOT_ALONE) {
            return grant;
        }
        if (request.wait > 0
                && engine.notifies
                && engine.subscription.isUp()
                && (grant = waiting.byNotify()) != Grant.NO_NOTIFY) {
            return grant;
        }
        grant = ask(0, null, engine.timeout);
        if (grant != null) {
            return grant;
        }
        if (left() <= 0) {
            mayBeKnown = false; // its place in the queue delays nobody
            throw request.wait > 0 ? timedOut() : Errors.refused(request.name);
        }
        if ((grant = waiting.alone()) != Grant.NOT_ALONE) {
            return grant;
        }
        if (engine.notifies && !noNotify && (grant = waiting.byNotify()) != Grant.NO_NOTIFY) {
            return grant;
        }
        return waiting.byBlocking();
    }

    long left() {
        return request.wait == Clock.NEVER ? Clock.NEVER : request.wait - (engine.clock.now() - began);
    }

    LockException timedOut() {
        return Errors.timedOut(request.name, engine.clock.now() - began);
    }

    /** Throws if the caller was interrupted or the manager is closed. */
    void over() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("the attempt to get the lock " + request.name + " was interrupted");
        }
        engine.checkOpen(request.name);
    }

    /** Sends it, and again after errors that may pass. Null: not granted. */
    Grant ask(long wait, String channel, long timeout) throws InterruptedException {
        long span = wait;
        while (true) {
            long sent = engine.clock.now();
            Object reply;
            try {
                reply = exchange(request.acquire(idBytes, span, channel), timeout);
            } catch (ReplyError | ConnectionLost error) {
                if (channel != null
                        && !engine.notifyWorks
                        && error instanceof ReplyError refusal
                        && !refusal.isUnknownCommand()
                        && (refusal.code.equals("ERR") || refusal.code.equals("NOPERM"))) {
                    noNotify = true;
                    return Grant.NO_NOTIFY;
                }
                pauseAfter(error);
                span = span > 0 ? Math.max(Clock.MILLISECOND, Math.min(span, left())) : 0;
                continue;
            }
            answered();
            engine.foundModule();
            return granted(reply, sent);
        }
    }

    /** A copy got a reply: tries are counted from here. */
    void answered() {
        tries = 0;
    }

    Grant granted(Object reply, long sent) {
        if (reply == null) {
            return null;
        }
        Grant grant = Grant.read(reply, sent, request.name, isPortable);
        if (grant == Grant.WAITING) {
            wasQueued = true;
            engine.notifyWorks = true;
        }
        return grant;
    }

    /** Sends one command; throws ReplyError or ConnectionLost. */
    Object exchange(byte[][] words, long timeout) throws InterruptedException {
        over();
        if (usesConnection && (connection == null || !connection.isOpen())) {
            takeConnection();
        }
        mayBeKnown = true;
        if (connection != null) {
            return Connections.call(connection, words, timeout);
        }
        return engine.router.call(request.key(), words, timeout);
    }

    /**
     * Pauses before the next copy, or throws the error if there is none. The connection of the previous copy is closed.
     * If it is shared, that copy may still arrive, and the next one uses another connection; both have the same ID, so
     * they get one grant. {@link #settleOverdue} handles replies after the end of the attempt.
     */
    void pauseAfter(RuntimeException error) throws InterruptedException {
        if (error instanceof LockException) {
            throw error;
        }
        tries++;
        if (error instanceof ConnectionLost lost && lost.late != null) {
            overdue.add(lost.late);
        }
        if (error instanceof ReplyError reply && reply.isUnknownCommand()) {
            throw error;
        }
        if (connection != null) {
            connection.close(); // its server may not have the key any more
        }
        if (engine.router.isCluster() && (usesConnection || error instanceof ConnectionLost)) {
            engine.router.refresh();
        }
        isUnsure |= error instanceof ConnectionLost;
        if (!Errors.mayPass(error) || left() <= 0 && tries >= 2) {
            if (!isUnsure && !wasQueued) {
                mayBeKnown = false; // after an error nothing has changed
            }
            throw error;
        }
        long pause = SHORTEST_PAUSE;
        if (request.wait > 0) {
            long longest = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE << Math.min(tries, 6));
            pause = Math.min(longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2), Math.max(0, left()));
        }
        engine.pause(pause);
        over();
    }

    /** When an overdue copy gets its reply or fails, cancels the attempt if isUnwanted. */
    void settleOverdue(BooleanSupplier isUnwanted) {
        for (CompletableFuture<Object> late : overdue) {
            late.whenComplete((reply, error) -> {
                if (isUnwanted.getAsBoolean()) {
                    engine.cancel(request, id, isPortable, false);
                }
            });
        }
    }

    /** Takes a connection for the whole attempt: a new one for a session, otherwise one of the few. */
    void takeConnection() throws InterruptedException {
        giveBackConnection();
        if (request.isSession) {
            connection = engine.router.dial(request.key(), true, engine.timeout);
            return;
        }
        if (isAlone) {
            connection = engine.blocking.take(request.key());
            return;
        }
        long patience = request.wait > 0 ? Math.max(0, left()) : engine.timeout;
        connection = engine.connections.take(request.key(), patience);
        if (connection == null) {
            over();
            if (request.wait > 0) {
                throw timedOut();
            }
            throw new ConnectionLost("no connection came free within " + patience / Clock.MILLISECOND + " ms");
        }
        isPooled = true;
    }

    void giveBackConnection() {
        Connection back = connection;
        connection = null;
        if (back != null) {
            if (isPooled) {
                engine.connections.giveBack(back);
            } else if (!isAlone) {
                back.close();
            }
        }
        isPooled = false;
    }

    /** Gives the connection back, and cancels what the server may have granted. */
    private void abandon(boolean isReachable, boolean isInterrupted) {
        giveBackConnection();
        if (!mayBeKnown) {
            return;
        }
        settleOverdue(() -> true);
        Runnable cancel = () -> engine.cancel(request, id, isPortable, isReachable);
        if (!isInterrupted) {
            cancel.run();
            return;
        }
        CompletableFuture<Void> done = CompletableFuture.runAsync(cancel, engine.debts);
        try {
            done.get(FAREWELL, TimeUnit.NANOSECONDS);
        } catch (InterruptedException again) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException goesOn) {
            // In the background.
        }
    }
}
