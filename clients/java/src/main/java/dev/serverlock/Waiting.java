package dev.serverlock;

import java.util.concurrent.ThreadLocalRandom;

/**
 * How an attempt waits in the queue: alone by blocking in pieces on one connection, beside others by NOTIFY. Where
 * NOTIFY is not available it blocks on one of a few connections; without the module it polls with the portable script.
 */
final class Waiting {
    private static final long PIECE = 5 * Clock.SECOND;
    private static final long LONE_PIECE = 2 * Clock.SECOND;
    private static final long CROWDED_PIECE = Clock.SECOND;
    private static final long RESEND = 5 * Clock.SECOND;
    private static final long RESEND_DOWN = Clock.SECOND;
    /** A server whose clock runs fast ends a wait early. */
    private static final long SLACK = 100 * Clock.MILLISECOND;

    private final Attempt attempt;
    private final Engine engine;
    private final Request request;

    Waiting(Attempt attempt) {
        this.attempt = attempt;
        engine = attempt.engine;
        request = attempt.request;
    }

    /** Waits without a connection of its own, and claims the lock when it is notified. */
    Grant byNotify() throws InterruptedException {
        Subscription subscription = engine.subscription;
        engine.blocking.end();
        News news = subscription.register(attempt.id, request.key());
        try {
            subscription.awaitReady(news, Math.min(RESEND_DOWN, attempt.left()));
            if (subscription.isRefused()) {
                engine.notifies = false;
                return Grant.NO_NOTIFY;
            }
            return byNotify(subscription, news);
        } finally {
            subscription.unregister(attempt.id);
        }
    }

    private Grant byNotify(Subscription subscription, News news) throws InterruptedException {
        String message = null;
        while (true) {
            long left = attempt.left();
            if (left <= 0) {
                throw attempt.timedOut();
            }
            news.forget();
            Grant grant = attempt.ask(left, subscription.channel, engine.timeout);
            if (grant == Grant.WAITING) {
                if ("granted".equals(message)) { // too late: the server skips this channel until it gets a claim
                    subscription.sendAgain();
                }
                message = awaitMessage(subscription, news);
            } else if (grant != null) {
                return grant;
            } else {
                attempt.mayBeKnown = false;
                if (attempt.left() > SLACK) {
                    throw Errors.refused(request.name);
                }
            }
        }
    }

    /** Returns when it is time to send the attempt again, with the message that asks for it, or null. */
    private String awaitMessage(Subscription subscription, News news) throws InterruptedException {
        long asked = engine.clock.now();
        while (true) {
            attempt.over();
            long span = subscription.isUp() ? RESEND : RESEND_DOWN;
            long now = engine.clock.now();
            long left = Math.min(Math.min(asked + span - now, news.againAt() - now), attempt.left());
            if (left <= 0) {
                return null;
            }
            String kind = news.await(left);
            if (kind == null) {
                continue;
            }
            if (kind.equals("cancelled")) {
                attempt.mayBeKnown = false;
                throw Errors.refused(request.name);
            }
            if (kind.equals("timeout") && attempt.left() <= SLACK) {
                attempt.mayBeKnown = false;
                throw attempt.timedOut();
            }
            return kind;
        }
    }

    /** Waits as the only attempt of the manager. NOT_ALONE: another attempt waits too. */
    Grant alone() throws InterruptedException {
        if (request.wait == 0 || request.needsConnection() || !engine.notifies || !engine.blocking.enter()) {
            return Grant.NOT_ALONE;
        }
        attempt.isAlone = true;
        try {
            return byBlocking();
        } finally {
            if (attempt.connection != null) {
                attempt.giveBackConnection();
            }
            attempt.isAlone = false;
            engine.blocking.leave();
        }
    }

    /** Waits in pieces: connections are few, and a lost reply is noticed at the end of a piece. */
    Grant byBlocking() throws InterruptedException {
        while (attempt.left() > 0) {
            if (attempt.isAlone && engine.blocking.hasEnded()) {
                return Grant.NOT_ALONE;
            }
            try {
                Grant grant = piece();
                if (grant != null && isConfirmed(grant)) {
                    return grant;
                }
            } catch (ConnectionLost error) {
                attempt.pauseAfter(error);
            }
        }
        throw attempt.timedOut();
    }

    private Grant piece() throws InterruptedException {
        attempt.usesConnection = true;
        boolean hasEnded = false;
        try {
            if (attempt.connection == null) {
                attempt.takeConnection();
            }
            long longest = attempt.isAlone ? LONE_PIECE : engine.connections.isCrowded() ? CROWDED_PIECE : PIECE;
            long span = Math.max(Clock.MILLISECOND, Math.min(attempt.left(), longest));
            long began = engine.clock.now();
            Grant grant = attempt.ask(span, null, span + engine.timeout);
            hasEnded = true;
            if (attempt.noNotify) { // the plain form is what works here
                engine.notifies = false;
            }
            attempt.wasQueued = true;
            if (grant == null && engine.clock.now() < began + span - SLACK && attempt.left() > SLACK) {
                attempt.mayBeKnown = false; // LOCK.CANCEL, or CLIENT UNBLOCK
                throw Errors.refused(request.name);
            }
            return grant;
        } finally {
            attempt.usesConnection = request.needsConnection();
            if (!hasEnded
                    && attempt.connection != null
                    && Thread.currentThread().isInterrupted()) {
                attempt.connection.close();
            }
            if (!attempt.usesConnection) {
                attempt.giveBackConnection();
            }
        }
    }

    /**
     * The grant may be as old as the blocking command. If that took long, the lease counts from an EXTEND. Returns
     * whether the grant is still valid.
     */
    private boolean isConfirmed(Grant grant) throws InterruptedException {
        while (engine.clock.now() >= grant.sent + request.lease / 3) {
            attempt.over();
            long sent = engine.clock.now();
            Object reply;
            try {
                reply = engine.router.call(request.key(), request.extend(grant.token, request.lease), engine.timeout);
            } catch (ReplyError | ConnectionLost error) {
                attempt.pauseAfter(error);
                continue;
            }
            grant.sent = sent;
            return Long.valueOf(1).equals(reply);
        }
        return true;
    }

    /** Polls by script while the module is not loaded. Null: it is time to ask for the module again. */
    Grant poll() throws InterruptedException {
        if (request.needsModule() != null) {
            throw new LockUnavailableException(
                    request.name, request.needsModule() + " needs the module, which is not loaded", null);
        }
        attempt.isPortable = true;
        while (true) {
            long sent = engine.clock.now();
            Object reply;
            try {
                Portable.Send send = words -> attempt.exchange(words, engine.timeout);
                reply = engine.portable.acquire(send, request, attempt.idBytes);
            } catch (ReplyError | ConnectionLost error) {
                attempt.pauseAfter(error);
                continue;
            }
            attempt.answered();
            Grant grant = attempt.granted(reply, sent);
            if (grant != null) {
                return grant;
            }
            attempt.mayBeKnown = false;
            if (attempt.left() <= 0) {
                throw request.wait > 0 ? attempt.timedOut() : Errors.refused(request.name);
            }
            long pause = (50 + ThreadLocalRandom.current().nextLong(100)) * Clock.MILLISECOND;
            engine.pause(Math.min(pause, attempt.left()));
            if (!engine.isPortable()) {
                return null;
            }
        }
    }
}
