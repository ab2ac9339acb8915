package dev.serverlock.internal.attempt;

import dev.serverlock.LockUnavailableException;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.connection.Subscription;
import dev.serverlock.internal.connection.Updates;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;

/**
 * Waits in the queue. A single waiter blocks in pieces on one connection; several waiters use NOTIFY. A session attempt
 * blocks on the connection that has its thread's locks. Where NOTIFY is not available, an attempt blocks on one of a
 * few connections. Without the module it waits with NOTIFY in the portable script's queue, or polls if it cannot use
 * that queue.
 */
final class Waiting {
    private static final long PIECE = 5 * Clock.SECOND;
    private static final long LONE_PIECE = 2 * Clock.SECOND;
    private static final long CROWDED_PIECE = Clock.SECOND;
    static final long RESEND_DOWN = Clock.SECOND;
    /** A server's clock may run fast and end a wait early. */
    static final long SLACK = 100 * Clock.MILLISECOND;

    private final Sender sender;
    private final Context context;
    private final Resources resources;
    private final Request request;

    Waiting(Sender sender, Resources resources) {
        this.sender = sender;
        this.resources = resources;
        context = resources.context();
        request = sender.request;
    }

    /** Waits without its own connection, and claims the lock when notified. */
    Grant byNotify() throws InterruptedException {
        Subscription subscription = resources.subscription();
        resources.blocking().end();
        String id = sender.id;
        Updates updates = subscription.register(id, request.key());
        try {
            subscription.awaitReady(updates, Math.min(RESEND_DOWN, sender.left()));
            return byNotify(subscription, updates);
        } finally {
            subscription.unregister(id);
        }
    }

    private Grant byNotify(Subscription subscription, Updates updates) throws InterruptedException {
        String message = null;
        while (true) {
            if (subscription.isRefused()) { // from the start, or since the user lost permission
                subscription.giveUp();
                sender.leaveQueue();
                return Grant.NO_NOTIFY;
            }
            long left = sender.left();
            if (left <= 0) {
                throw sender.timedOut();
            }
            if (sender.isPortable && !resources.module().isMissing()) {
                return Grant.ASK_MODULE;
            }
            updates.forget();
            boolean joins = sender.mayJoin();
            Grant grant = sender.ask(joins ? left : 0, joins ? subscription.channel() : null, context.timeout());
            if (grant == Grant.WAITING || grant == null && !joins) {
                if ("granted".equals(message)) { // too late: the server skips this channel until it gets a claim
                    subscription.sendAgain();
                }
                message = awaitMessage(subscription, updates);
            } else if (grant != null || sender.isPortable) {
                return grant; // null from the script: the request was sent without the queue
            } else {
                sender.mayBeKnown = false;
                if (sender.left() > SLACK) {
                    throw Errors.refused(request.name());
                }
            }
        }
    }

    /** Returns when it is time to resend the attempt, with the message that prompted it, or null. */
    private String awaitMessage(Subscription subscription, Updates updates) throws InterruptedException {
        long asked = context.now();
        while (true) {
            sender.over();
            if (subscription.isRefused()) {
                return null;
            }
            long span = subscription.isUp() ? sender.span : Math.min(sender.span, RESEND_DOWN);
            long now = context.now();
            long left = Math.min(Math.min(asked + span - now, updates.againAt() - now), sender.left());
            if (left <= 0) {
                return null;
            }
            String kind = updates.await(left);
            if (kind == null) {
                continue;
            }
            if (kind.equals("cancelled")) {
                sender.mayBeKnown = false;
                throw Errors.refused(request.name());
            }
            if (kind.equals("timeout") && sender.left() <= SLACK) {
                sender.mayBeKnown = false;
                throw sender.timedOut();
            }
            return kind;
        }
    }

    /** Waits as the manager's only attempt. Returns NOT_ALONE if another attempt waits too. */
    Grant alone() throws InterruptedException {
        if (request.waiting() == 0
                || request.needsConnection()
                || !resources.subscription().isUsable()
                || !resources.blocking().enter()) {
            return Grant.NOT_ALONE;
        }
        sender.isAlone = true;
        try {
            return byBlocking();
        } finally {
            if (sender.connection != null) {
                sender.giveBackConnection();
            }
            sender.isAlone = false;
            resources.blocking().leave();
        }
    }

    /** Waits in pieces, because connections are few and a lost reply is noticed at the end of a piece. */
    Grant byBlocking() throws InterruptedException {
        do {
            if (sender.isAlone && resources.blocking().hasEnded()) {
                return Grant.NOT_ALONE;
            }
            try {
                Grant grant = piece();
                Grant confirmed = grant == null ? null : confirmed(grant);
                if (confirmed != null) {
                    return confirmed;
                }
            } catch (ConnectionLost error) {
                sender.leaveAfter(error);
            }
        } while (sender.left() > 0);
        throw sender.timedOut();
    }

    private Grant piece() throws InterruptedException {
        sender.usesConnection = true;
        boolean hasEnded = false;
        try {
            if (sender.connection == null && sender.session == null) {
                sender.takeConnection();
            }
            boolean isCrowded = !request.isSession() && resources.connections().hasWaiters();
            long longest = sender.isAlone ? LONE_PIECE : isCrowded ? CROWDED_PIECE : PIECE;
            long span = Math.max(Clock.MILLISECOND, Math.min(sender.left(), longest));
            long began = context.now();
            Grant grant = sender.ask(span, null, span + context.timeout());
            hasEnded = true;
            if (sender.noNotify) { // only the plain form works here
                resources.subscription().giveUp();
            }
            sender.queued();
            if (grant == null && context.now() < began + span - SLACK && sender.left() > SLACK) {
                sender.mayBeKnown = false; // LOCK.CANCEL, or CLIENT UNBLOCK
                throw Errors.refused(request.name());
            }
            return grant;
        } finally {
            sender.usesConnection = request.needsConnection();
            if (!hasEnded && sender.connection != null && Thread.currentThread().isInterrupted()) {
                sender.connection.close();
            }
            if (!sender.usesConnection) {
                sender.giveBackConnection();
            }
        }
    }

    /**
     * The grant may be as old as the blocking command. If the command took a long time, an EXTEND starts a new lease.
     * Returns null if the grant is no longer valid.
     */
    private Grant confirmed(Grant grant) throws InterruptedException {
        while (grant.result() == null && context.now() >= grant.sent() + request.lease() / 3) {
            sender.over();
            long sent = context.now();
            Object reply;
            try {
                reply = resources
                        .router()
                        .call(request.key(), request.extend(grant.token(), request.lease()), context.timeout());
            } catch (ReplyError | ConnectionLost error) {
                sender.pause(error);
                continue;
            }
            return Long.valueOf(1).equals(reply) ? grant.withSent(sent) : null;
        }
        return grant;
    }

    /** Waits without the module. Returns null when it is time to try the module again. */
    Grant byScript() throws InterruptedException {
        if (request.needsModule() != null) {
            throw new LockUnavailableException(request.name(), request.needsModule(), null);
        }
        sender.isPortable = true;
        boolean hasAsked = false;
        while (true) {
            boolean queues = request.waiting() > 0
                    && request.hasQueue()
                    && resources.subscription().isUsable()
                    && !resources.portable().isAlone();
            boolean waits = queues && (hasAsked || resources.subscription().isUp());
            Grant grant = waits ? byNotify() : sender.ask(0, null, context.timeout());
            hasAsked = true;
            if (grant == Grant.ASK_MODULE) {
                return null;
            }
            if (grant != null && grant != Grant.NO_NOTIFY) {
                return grant;
            }
            if (sender.left() <= 0) {
                sender.mayBeKnown = sender.wasQueued || sender.isUnsure;
                throw sender.refused();
            }
            if (queues && !waits) {
                continue;
            }
            context.pause(sender.untilPoll());
            if (!resources.module().isMissing()) {
                return null;
            }
        }
    }
}
