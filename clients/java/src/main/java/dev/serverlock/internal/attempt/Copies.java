package dev.serverlock.internal.attempt;

import dev.serverlock.LockException;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.hold.Debts;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;

/**
 * The state of one attempt, and its decision after each reply. All copies of its request have the same ID, so they get
 * at most one grant. It blocks no thread: {@link Sender} and {@link AsyncAttempt} send the copies.
 */
class Copies {
    private static final long RESEND = 5 * Clock.SECOND;
    /** A copy without a reply may still run after this. Unlike the module, a script does not block the ID. */
    private static final long ONCE_MORE = 2 * Clock.SECOND;

    private static final long SHORTEST_PAUSE = 10 * Clock.MILLISECOND;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLISECOND;

    final Context context;
    final Resources resources;
    final Request request;
    String id;
    byte[] idBytes;
    final long began;

    boolean usesConnection;
    boolean mayBeKnown; // the server may know the attempt
    boolean wasQueued; // in the module's queue or the script's
    private boolean hasPlace; // in the script's queue
    boolean isUnsure; // one of its copies got no reply
    boolean isPortable;
    boolean noNotify;
    /** Without news, a waiting attempt is resent after this long. */
    long span = RESEND;

    int tries; // copies in a row that failed
    private final List<CompletableFuture<Object>> overdue = new ArrayList<>(0); // replies that may still arrive

    Copies(Resources resources, Request request) {
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

    /** How long to poll before the next copy. */
    long untilPoll() {
        return Math.min((50 + ThreadLocalRandom.current().nextLong(100)) * Clock.MILLISECOND, left());
    }

    LockException timedOut() {
        return Errors.timedOut(request.name(), context.now() - began);
    }

    /** The error of an attempt that got nil. After RECOVER, it says if the lock is free. */
    CompletableFuture<LockException> refused(Exchange exchange) {
        if (request.waiting() > 0) {
            return CompletableFuture.completedFuture(timedOut());
        }
        if (!request.isRecovery()) {
            return CompletableFuture.completedFuture(Errors.refused(request.name()));
        }
        CompletableFuture<Object> info =
                isPortable ? resources.portable().info(exchange, request) : exchange.send(request.info());
        return info.thenApply(reply -> Words.text(Words.field(reply, "state")).equals("free"))
                .exceptionallyCompose(error -> Exchange.cause(error) instanceof InterruptedException
                        ? CompletableFuture.failedFuture(error)
                        : CompletableFuture.completedFuture(false)) // this user may not ask, for example
                .thenApply(isFree -> isFree ? Errors.nothingToRecover(request.name()) : Errors.refused(request.name()));
    }

    /** Sends a copy in the form of the portable script. */
    CompletableFuture<Object> byScript(Exchange exchange, long wait, String channel) {
        // An attempt that gets no messages never overtakes a queue, so it would wait forever.
        boolean isAlone = request.waiting() > 0 && !resources.subscription().isUsable();
        return resources.portable().acquire(exchange, request, idBytes, wait, channel, isAlone);
    }

    /**
     * Whether an attempt may ask with NOTIFY now. A release with the script removes attempts whose channel has no
     * subscriber, so they join its queue only once the manager has subscribed. An attempt that has its place there
     * keeps it.
     */
    boolean mayJoin() {
        return !isPortable || hasPlace || resources.subscription().isUp();
    }

    /** Records that the attempt is in the queue that it asked for. */
    void queued() {
        wasQueued = true;
        hasPlace = isPortable;
    }

    /** Whether an error means that the server or this user cannot use NOTIFY. */
    boolean isAboutNotify(RuntimeException error, String channel) {
        return channel != null
                && !isPortable
                && !resources.subscription().hasWorked()
                && error instanceof ReplyError refusal
                && !refusal.isUnknownCommand()
                && (refusal.code().equals("ERR") || refusal.code().equals("NOPERM"));
    }

    /** Reads the reply to a copy. Returns null if the lock is not granted. sent: when the copy was sent. */
    Grant granted(Object reply, long sent) {
        tries = 0; // a reply resets the count
        if (!isPortable && resources.module().found()) {
            resources.subscription().sendAgain(); // attempts in the script's queue move to the module's
        }
        if (reply == null) {
            return null;
        }
        Grant grant = Grant.read(reply, sent, request.name(), isPortable);
        if (grant == Grant.WAITING) {
            queued();
            long pause = Grant.pause(reply);
            span = pause < 0 ? RESEND : pause * Clock.MILLISECOND;
            if (!isPortable) {
                resources.subscription().worked();
            }
        }
        return grant;
    }

    /** How long to pause after an error, before the next copy. Throws the error if there is no next copy. */
    long pauseAfter(RuntimeException error) {
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
            refresh();
        }
        isUnsure |= error instanceof ConnectionLost;
        if (!Errors.isTransient(error) || left() <= 0 && tries >= 2) {
            if (!isUnsure && !wasQueued) {
                mayBeKnown = false; // a command that fails changes nothing
            }
            throw error;
        }
        if (request.waiting() == 0) {
            return SHORTEST_PAUSE;
        }
        long longest = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE << Math.min(tries, 6));
        return Math.min(longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2), Math.max(0, left()));
    }

    /** Asks which server has the key now. */
    void refresh() {
        resources.router().refresh();
    }

    /** Once an overdue copy gets its reply or fails, cancels the attempt if the grant is unwanted. */
    void settleOverdue(BooleanSupplier isUnwanted) {
        byte[] id = idBytes;
        for (CompletableFuture<Object> late : overdue) {
            late.whenComplete((reply, error) -> {
                if (isUnwanted.getAsBoolean()) {
                    cancelLater(id, error != null);
                }
            });
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
        cancelLater(idBytes, isUnsure);
        drawId();
        mayBeKnown = false;
        wasQueued = false;
        hasPlace = false;
        isUnsure = false;
    }

    /** Ends the wait of an ID, or what it was granted. */
    private CompletableFuture<?> cancel(Exchange exchange, byte[] id, boolean isPortable) {
        if (isPortable) {
            return resources
                    .portable()
                    .cancel(exchange, request, id, resources.subscription().channel());
        }
        CompletableFuture<?> done = CompletableFuture.completedFuture(null);
        for (byte[] key : request.keys()) {
            byte[][] words = new Words(3).add("LOCK.CANCEL").add(key).add(id).done();
            done = done.thenCompose(before -> exchange.send(words));
        }
        return done;
    }

    /** How long a reply to a cancel may take. */
    long patience() {
        return isPortable ? context.timeout() : resources.debts().patience();
    }

    /**
     * Cancels over the exchange, and in the background if that fails for the moment. mayStillRun: whether a copy may
     * run after the cancel.
     */
    CompletableFuture<Void> cancel(Exchange exchange, boolean mayStillRun) {
        byte[] id = idBytes;
        boolean isPortable = this.isPortable;
        oweLateCopy(id, isPortable, mayStillRun);
        return cancel(exchange, id, isPortable).handle((reply, error) -> {
            Throwable cause = Exchange.cause(error);
            // Otherwise the server has replied, or does not let this user in.
            if (cause instanceof RuntimeException failure && Errors.isTransient(failure)) {
                owe(id, isPortable);
            }
            return null;
        });
    }

    /** Cancels in the background. */
    void cancelLater(byte[] id, boolean mayStillRun) {
        boolean isPortable = this.isPortable;
        oweLateCopy(id, isPortable, mayStillRun);
        owe(id, isPortable);
    }

    private void oweLateCopy(byte[] id, boolean isPortable, boolean mayStillRun) {
        if (isPortable && mayStillRun) {
            resources.debts().oweLater(context.now() + ONCE_MORE, debtSpan(), debt(id, isPortable));
        }
    }

    private void owe(byte[] id, boolean isPortable) {
        resources.debts().owe(context.now() + debtSpan(), debt(id, isPortable));
    }

    private long debtSpan() {
        return Math.max(request.lease() + 2 * Clock.SECOND, context.timeout());
    }

    private Debts.Debt debt(byte[] id, boolean isPortable) {
        long patience = isPortable ? context.timeout() : resources.debts().patience();
        Exchange exchange = Exchange.blocking(words -> resources.router().call(request.key(), words, patience));
        return () -> {
            try {
                Exchange.result(cancel(exchange, id, isPortable));
            } catch (InterruptedException impossible) {
                throw new AssertionError(impossible); // the router does not wait for an interrupt
            }
        };
    }
}
