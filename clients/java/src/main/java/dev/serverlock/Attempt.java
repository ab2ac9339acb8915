package dev.serverlock;

import dev.serverlock.spi.Line;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * One try to get a lock: sent, and given up without leaving anything behind. It asks without waiting first, over the
 * application's own client. Only if somebody else has the lock, it stands in line; how, says {@link Waiting}.
 */
final class Attempt {
    /**
     * How long an interrupted caller waits for its attempt to be given up at the server. It goes on in the background.
     */
    private static final long FAREWELL = 100 * Clock.MILLISECOND;

    private static final long SHORTEST_PAUSE = 10 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLISECOND;

    final Engine engine;
    final Request request;
    final String id;
    final byte[] idBytes;
    final long began;

    Line line;
    boolean isSolo; // the line is that of the only wait
    boolean usesLine;
    boolean mayStand; // the server may know of it
    boolean stood;
    boolean isUnsure; // no reply came to one of its copies
    boolean isPortable;
    boolean noNotify;

    private int tries;
    private boolean isPooled; // the line is one of the few
    private final List<CompletableFuture<Object>> overdue = new ArrayList<>(0); // replies that may still come

    Attempt(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
        began = engine.clock.now();
        id = Long.toString(ThreadLocalRandom.current().nextLong(1, 1_000_000_000_000_000_000L));
        idBytes = Words.bytes(id);
        usesLine = request.needsLine();
    }

    /** Gives the grant; throws the typed error. */
    Grant run() throws InterruptedException {
        Grant grant;
        try {
            over();
            grant = get();
            if (request.replicas > 0 || request.isFsync) {
                Confirmation.await(line, request, engine.timeout);
            }
        } catch (InterruptedException givenUp) {
            if (line != null) {
                line.close(); // a reply that is on its way must not be read as that to another call
            }
            abandon(true, true);
            throw givenUp;
        } catch (RuntimeException error) {
            abandon(!(error instanceof Broken), false);
            throw Judge.typed(error, request.name, request.wait > 0 ? engine.clock.now() - began : Judge.NO_WAIT);
        }
        if (request.isSession) {
            grant.line = line;
            line = null;
        }
        giveBackLine();
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

    /** Null: it is not loaded. */
    private Grant byModuleIfLoaded(Waiting waiting) throws InterruptedException {
        boolean mightStand = mayStand;
        isPortable = false;
        try {
            return byModule(waiting);
        } catch (Said reply) {
            if (!reply.isUnknownCommand() || !engine.missModule(reply)) {
                throw reply;
            }
        }
        mayStand = mightStand; // the server knows of it by script at most
        return null;
    }

    private Grant byModule(Waiting waiting) throws InterruptedException {
        Grant grant;
        if (engine.solo.isReady() && (grant = waiting.alone()) != Grant.NOT_ALONE) {
            return grant;
        }
        if (request.wait > 0 && engine.notifies && engine.subscription.isUp()
                && (grant = waiting.byNotify()) != Grant.NO_NOTIFY) {
            return grant;
        }
        grant = ask(0, null, engine.timeout);
        if (grant != null) {
            return grant;
        }
        if (left() <= 0) {
            mayStand = false; // its place holds nobody up
            throw request.wait > 0 ? timedOut() : Judge.refused(request.name);
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
        return Judge.timedOut(request.name, engine.clock.now() - began);
    }

    /** Ends an attempt that nobody waits for any more. */
    void over() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("the attempt to get the lock " + request.name + " was interrupted");
        }
        engine.checkOpen(request.name);
    }

    /** Sends it, and again after errors that may pass. Null: it was not granted. */
    Grant ask(long wait, String channel, long timeout) throws InterruptedException {
        long span = wait;
        while (true) {
            long sent = engine.clock.now();
            Object reply;
            try {
                reply = exchange(request.acquire(idBytes, span, channel), timeout);
            } catch (Said | Broken error) {
                if (channel != null && error instanceof Said said && !engine.notifyWorks && !said.isUnknownCommand()
                        && (said.code.equals("ERR") || said.code.equals("NOPERM"))) {
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

    /** A copy was answered: the next one counts from one again. */
    void answered() {
        tries = 0;
    }

    Grant granted(Object reply, long sent) {
        if (reply == null) {
            return null;
        }
        Grant grant = Grant.read(reply, sent, request.name, isPortable);
        if (grant == Grant.STANDING) {
            stood = true;
            engine.notifyWorks = true;
        }
        return grant;
    }

    /** One exchange; throws Said or Broken. */
    Object exchange(byte[][] words, long timeout) throws InterruptedException {
        over();
        if (usesLine && (line == null || !line.isOpen())) {
            takeLine();
        }
        mayStand = true;
        if (line != null) {
            return Lines.call(line, words, timeout);
        }
        return engine.router.call(request.key(), words, timeout);
    }

    /**
     * Waits a little before the next copy, or throws the error if there is to be none. The connection of the copy before
     * is closed; if others share it, the copy may still be on its way there, and the next one goes over another. Both have
     * one ID, so that they get one grant. What the server does after the attempt has ended is {@link #settleOverdue}.
     */
    void pauseAfter(RuntimeException error) throws InterruptedException {
        if (error instanceof LockException) {
            throw error;
        }
        tries++;
        if (error instanceof Broken broken && broken.late != null) {
            overdue.add(broken.late);
        }
        if (error instanceof Said said && said.isUnknownCommand()) {
            throw error;
        }
        if (line != null) {
            line.close(); // it may lead to a server that does not have the key any more
        }
        if (engine.router.isCluster() && (usesLine || error instanceof Broken)) {
            engine.router.refresh();
        }
        isUnsure |= error instanceof Broken;
        if (!Judge.mayPass(error) || left() <= 0 && tries >= 2) {
            if (!isUnsure && !stood) {
                mayStand = false; // after an error nothing has changed
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

    /** Once it is known what became of copies that are overdue, what they may have got is given back if isUnwanted. */
    void settleOverdue(BooleanSupplier isUnwanted) {
        for (CompletableFuture<Object> late : overdue) {
            late.whenComplete((reply, error) -> {
                if (isUnwanted.getAsBoolean()) {
                    engine.cancel(request, id, isPortable, false);
                }
            });
        }
    }

    /** Takes a line for the whole attempt: its own for a session, one of the few for WAIT. */
    void takeLine() throws InterruptedException {
        giveBackLine();
        if (request.isSession) {
            line = engine.router.dial(request.key(), true, engine.timeout);
            return;
        }
        if (isSolo) {
            line = engine.solo.take(request.key());
            return;
        }
        long patience = request.wait > 0 ? Math.max(0, left()) : engine.timeout;
        line = engine.lines.take(request.key(), patience);
        if (line == null) {
            over();
            if (request.wait > 0) {
                throw timedOut();
            }
            throw new Broken("no connection came free within " + patience / Clock.MILLISECOND + " ms");
        }
        isPooled = true;
    }

    void giveBackLine() {
        Line back = line;
        line = null;
        if (back != null) {
            if (isPooled) {
                engine.lines.giveBack(back);
            } else if (!isSolo) {
                back.close();
            }
        }
        isPooled = false;
    }

    /** Leaves the line, and gives back what was granted without its being known. */
    private void abandon(boolean isReachable, boolean isInterrupted) {
        giveBackLine();
        if (!mayStand) {
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
