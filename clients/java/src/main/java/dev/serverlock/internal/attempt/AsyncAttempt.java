package dev.serverlock.internal.attempt;

import dev.serverlock.LockException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.connection.Subscription;
import dev.serverlock.internal.connection.Updates;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.ReplyError;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;

/**
 * One attempt that no thread waits for. It asks first without waiting. If somebody else has the lock, it waits with
 * NOTIFY in the queue of the module, or of the portable script. Where it cannot use a queue, it polls. If it fails or
 * is cancelled, it leaves nothing behind.
 *
 * <p>Its steps run one after another in the manager's one thread for them, which alone uses the fields. No step blocks.
 */
public final class AsyncAttempt {
    private final Resources resources;
    private final Context context;
    private final Request request;
    private final Subscription subscription;
    private final Copies copies;
    private final Set<AsyncAttempt> pending;
    private final CompletableFuture<Grant> outcome = new CompletableFuture<>();

    /** Its messages. Null while it is not registered. */
    private Updates updates;
    /** The message that prompted the current copy, or null. */
    private String message;
    /** What it waits for between two copies. */
    private CompletableFuture<Void> next = new CompletableFuture<>();

    private boolean hasAsked;
    private boolean wasKnown; // the server may know the attempt through the script
    private boolean isInFlight;
    private boolean isOver;

    /** pending: has the attempt until nothing is left of it. */
    public AsyncAttempt(Resources resources, Request request, Set<AsyncAttempt> pending) {
        this.resources = resources;
        this.request = request;
        this.pending = pending;
        context = resources.context();
        subscription = resources.subscription();
        copies = new Copies(resources, request) {
            @Override
            void refresh() {
                resources.router().refreshIn(context.debts());
            }
        };
    }

    public long began() {
        return copies.began;
    }

    /** Begins. The result completes with the grant, or the error that users get. */
    public CompletableFuture<Grant> start() {
        pending.add(this);
        step(() -> {
            context.checkOpen(request.name());
            copy();
        });
        return outcome;
    }

    /** Ends the attempt. Any thread may call this; it does nothing if the attempt has ended. */
    public void cancel() {
        if (!outcome.isDone()) {
            stop(new CancellationException());
        }
    }

    /** Ends the attempt because the manager is closed. */
    public void close() {
        stop(new LockMisuseException(request.name(), "its Locks are closed", null));
    }

    /** Once an overdue copy gets its reply or fails, cancels the attempt if the grant is unwanted by then. */
    public void settleOverdue(BooleanSupplier isUnwanted) {
        copies.settleOverdue(isUnwanted);
    }

    /** Runs a step in the thread for steps, unless the attempt has ended. */
    private void step(Runnable step) {
        context.async().execute(() -> {
            if (!isOver) {
                run(step);
            }
        });
    }

    private void run(Runnable step) {
        try {
            step.run();
        } catch (RuntimeException error) {
            fail(error);
        }
    }

    /** Runs a step after that time, or when the future completes. */
    private void later(CompletableFuture<Void> change, long span, Runnable step) {
        next = context.completeAfter(change, span);
        next.thenRun(() -> step(step));
    }

    private Exchange exchange(long timeout) {
        return words -> resources.router().callAsync(request.key(), words, timeout, context.debts());
    }

    /** Sends a copy: with NOTIFY if it can, unless it is the first one and nobody has subscribed yet. */
    private void copy() {
        chooseForm();
        boolean queues = mayQueue();
        if (updates != null && (!queues || subscription.isRefused())) {
            leaveQueue();
            queues = mayQueue();
        }
        boolean notifies = queues && (hasAsked || subscription.isUp());
        if (notifies && updates == null) {
            updates = subscription.register(copies.id, request.key());
            awaitReady(Clock.after(context.now(), Math.min(Waiting.RESEND_DOWN, copies.left())));
            return;
        }
        long left = copies.left();
        if (notifies && left <= 0 && copies.tries == 0) {
            throw copies.timedOut();
        }
        boolean joins = notifies && copies.mayJoin();
        send(joins ? Math.max(Clock.MILLISECOND, left) : 0, joins ? subscription.channel() : null);
    }

    /** The module's, or the script's. Every few seconds, one attempt tries the module on behalf of all. */
    private void chooseForm() {
        if (hasAsked && !copies.isPortable) {
            return;
        }
        boolean isPortable = resources.module().isMissing();
        if (isPortable && request.needsModule() != null) {
            throw new LockUnavailableException(request.name(), request.needsModule(), null);
        }
        wasKnown = copies.isPortable && copies.mayBeKnown;
        copies.isPortable = isPortable;
    }

    private boolean mayQueue() {
        return request.waiting() > 0
                && subscription.isUsable()
                && (copies.isPortable
                        ? request.hasQueue() && !resources.portable().isAlone()
                        : !copies.noNotify);
    }

    /** Polls from now on, because the server refuses the subscription or NOTIFY. */
    private void leaveQueue() {
        if (subscription.isRefused()) {
            subscription.giveUp();
            unregister();
            copies.leaveQueue();
        } else {
            unregister();
        }
    }

    private void unregister() {
        if (updates != null) {
            subscription.unregister(copies.id);
            updates = null;
        }
    }

    /** Sends the first copy with NOTIFY once the connection is subscribed, or the server has refused it. */
    private void awaitReady(long until) {
        long left = until - context.now();
        if (subscription.isUp() || subscription.isRefused() || left <= 0) {
            copy();
            return;
        }
        updates.poll();
        later(updates.change(), left, () -> awaitReady(until));
    }

    private void send(long wait, String channel) {
        if (updates != null) {
            updates.forget();
        }
        hasAsked = true;
        copies.mayBeKnown = true;
        isInFlight = true;
        long sent = context.now();
        Exchange exchange = exchange(context.timeout());
        CompletableFuture<Object> reply = copies.isPortable
                ? copies.byScript(exchange, wait, channel)
                : exchange.send(request.acquire(copies.idBytes, wait, channel));
        reply.whenCompleteAsync(
                (value, error) -> {
                    isInFlight = false;
                    if (isOver) {
                        settle(error);
                    } else if (error == null) {
                        run(() -> replied(value, sent, channel != null));
                    } else {
                        run(() -> failed(error, channel));
                    }
                },
                context.async());
    }

    private void replied(Object reply, long sent, boolean hasNotify) {
        Grant grant = copies.granted(reply, sent);
        if (grant == Grant.WAITING) {
            if ("granted".equals(message)) { // too late: the server skips this channel until it gets a claim
                subscription.sendAgain();
            }
            message = null;
            await(context.now());
        } else if (grant != null) {
            end();
            pending.remove(this);
            outcome.complete(grant);
        } else if (hasNotify && !copies.isPortable) {
            copies.mayBeKnown = false;
            if (copies.left() > Waiting.SLACK) {
                throw Errors.refused(request.name());
            }
            copy();
        } else {
            notGranted(hasNotify);
        }
    }

    /** The lock is taken, and the copy asked without the queue. */
    private void notGranted(boolean hasNotify) {
        message = null;
        if (copies.noNotify && !copies.isPortable) { // only the plain form works here
            subscription.giveUp();
        }
        if (copies.left() <= 0) {
            copies.mayBeKnown = copies.isPortable && (copies.wasQueued || copies.isUnsure);
            copies.refused(exchange(context.timeout())).thenAccept(error -> step(() -> fail(error)));
        } else if (mayQueue() && !hasNotify) {
            if (updates == null) {
                copy();
            } else { // until the manager has subscribed
                await(context.now());
            }
        } else {
            later(new CompletableFuture<>(), copies.untilPoll(), this::copy);
        }
    }

    private void failed(Throwable failure, String channel) {
        if (!(Exchange.cause(failure) instanceof RuntimeException error)) {
            throw new ConnectionLost(failure.toString());
        }
        message = null;
        if (copies.isAboutNotify(error, channel)) {
            copies.noNotify = true;
            copy();
            return;
        }
        long pause;
        try {
            pause = copies.pauseAfter(error);
        } catch (ReplyError reply) {
            if (copies.isPortable
                    || !reply.isUnknownCommand()
                    || !resources.module().missed(reply)) {
                throw reply;
            }
            copies.mayBeKnown = wasKnown;
            copies.isPortable = true;
            copy();
            return;
        }
        later(new CompletableFuture<>(), pause, this::copy);
    }

    /** Sends the next copy after a message, after a change in the connection, or when it is time. */
    private void await(long asked) {
        if (subscription.isRefused()) {
            copy();
            return;
        }
        long span = subscription.isUp() ? copies.span : Math.min(copies.span, Waiting.RESEND_DOWN);
        long now = context.now();
        long left = Math.min(Math.min(asked + span - now, updates.againAt() - now), copies.left());
        if (left <= 0) {
            copy();
            return;
        }
        String kind = updates.poll();
        if (kind == null) {
            later(updates.change(), left, () -> await(asked));
            return;
        }
        boolean hasTimedOut = kind.equals("timeout") && copies.left() <= Waiting.SLACK;
        if (kind.equals("cancelled") || hasTimedOut) {
            copies.mayBeKnown = false;
            throw hasTimedOut ? copies.timedOut() : Errors.refused(request.name());
        }
        message = kind;
        copy();
    }

    /** Stops waiting. */
    private void end() {
        isOver = true;
        unregister();
        next.complete(null); // its timer ends
    }

    /** Ends the attempt after an error. Users get the error once nothing is left on the server. */
    private void fail(RuntimeException error) {
        end();
        boolean isReachable = !(error instanceof ConnectionLost);
        settle(isReachable).whenComplete((none, failure) -> {
            pending.remove(this);
            LockException typed = Errors.typed(
                    error, request.name(), request.waiting() > 0 ? context.now() - copies.began : Errors.NO_WAIT);
            outcome.completeExceptionally(typed);
        });
    }

    /** Ends the attempt at once, and cancels it after the reply to a copy that is in flight. */
    private void stop(RuntimeException why) {
        context.async().execute(() -> {
            if (isOver) {
                return;
            }
            end();
            if (!isInFlight) {
                settle((Throwable) null);
            }
            outcome.completeExceptionally(why);
        });
    }

    /** Cancels a stopped attempt. error: that of the copy which was in flight, or null. */
    private void settle(Throwable error) {
        boolean isLost = Exchange.cause(error) instanceof ConnectionLost;
        if (isLost) {
            keepLate((ConnectionLost) Exchange.cause(error));
        }
        settle(!isLost).whenComplete((none, failure) -> pending.remove(this));
    }

    private void keepLate(ConnectionLost error) {
        try {
            copies.pauseAfter(error);
        } catch (ConnectionLost last) {
            // There is no next copy anyway.
        }
    }

    /** Cancels what the server may know of the attempt. Completes once it has replied, or this goes on later. */
    private CompletableFuture<Void> settle(boolean isReachable) {
        if (!copies.mayBeKnown) {
            return CompletableFuture.completedFuture(null);
        }
        copies.settleOverdue(() -> true);
        if (!isReachable) {
            copies.cancelLater(copies.idBytes, copies.isUnsure);
            return CompletableFuture.completedFuture(null);
        }
        return copies.cancel(exchange(copies.patience()), copies.isUnsure);
    }
}
