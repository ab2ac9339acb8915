package dev.serverlock.internal.attempt;

import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.connection.Subscription;
import dev.serverlock.internal.hold.Session;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import java.util.function.BooleanSupplier;

/**
 * One attempt to get a lock. If it fails, it leaves nothing behind. It first asks without waiting, through the
 * application's own client. It waits in the queue only if somebody else has the lock: see {@link Waiting}. A session
 * attempt always uses the connection of its session, and waits on it.
 */
public final class Attempt {
    private final Resources resources;
    private final Request request;
    private final Sender sender;
    private final Waiting waiting;
    private Session session;

    public Attempt(Resources resources, Request request) {
        this.resources = resources;
        this.request = request;
        sender = new Sender(resources, request);
        waiting = new Waiting(sender, resources);
    }

    public long began() {
        return sender.began;
    }

    /** The session that has the grant, which the caller keeps. Null without a session. */
    public Session session() {
        return session;
    }

    /** Returns the grant or the result; throws the error that users get. */
    public Grant run() throws InterruptedException {
        Grant grant;
        try {
            sender.over();
            grant = get();
            if (request.replicas() > 0 || request.isFsync()) {
                Replicas.await(sender, resources.context().timeout());
            }
            grant = sender.withResult(grant);
        } catch (InterruptedException givenUp) {
            if (sender.connection != null) {
                sender.connection.close(); // a late reply must not be read as the reply to another command
            }
            sender.abandon(true, true);
            throw givenUp;
        } catch (RuntimeException error) {
            sender.abandon(!(error instanceof ConnectionLost), false);
            throw Errors.typed(
                    error,
                    request.name(),
                    request.waiting() > 0 ? resources.context().now() - sender.began : Errors.NO_WAIT);
        }
        session = sender.session;
        sender.session = null;
        sender.giveBackConnection();
        return grant;
    }

    /** Once an overdue copy gets its reply or fails, cancels the attempt if the grant is unwanted by then. */
    public void settleOverdue(BooleanSupplier isUnwanted) {
        sender.settleOverdue(isUnwanted);
    }

    private Grant get() throws InterruptedException {
        boolean asksForModule = !resources.module().isMissing();
        while (true) {
            Grant grant = asksForModule ? byModuleIfLoaded() : waiting.byScript();
            if (grant != null) {
                return grant;
            }
            asksForModule = !asksForModule;
        }
    }

    /** Returns null if the module is not loaded. */
    private Grant byModuleIfLoaded() throws InterruptedException {
        boolean mightBeKnown = sender.mayBeKnown;
        sender.isPortable = false;
        try {
            return byModule();
        } catch (ReplyError reply) {
            if (!reply.isUnknownCommand() || !resources.module().missed(reply)) {
                throw reply;
            }
        }
        sender.mayBeKnown = mightBeKnown; // the server may know the attempt only through the script
        return null;
    }

    private Grant byModule() throws InterruptedException {
        if (request.isSession() && sender.left() > 0) {
            return waiting.byBlocking(); // the server sees a client that holds its other locks and waits for this one
        }
        Subscription subscription = resources.subscription();
        Grant grant;
        if (resources.blocking().isReady() && (grant = waiting.alone()) != Grant.NOT_ALONE) {
            return grant;
        }
        if (request.waiting() > 0
                && subscription.isUsable()
                && subscription.isUp()
                && (grant = waiting.byNotify()) != Grant.NO_NOTIFY) {
            return grant;
        }
        if (!(sender.mayBeKnown && request.wantsResult())) { // such a copy would give up the result
            grant = sender.ask(0, null, resources.context().timeout());
            if (grant != null) {
                return grant;
            }
        }
        if (sender.left() <= 0) {
            sender.mayBeKnown = false; // its place in the queue delays nobody
            throw sender.refused();
        }
        if ((grant = waiting.alone()) != Grant.NOT_ALONE) {
            return grant;
        }
        if (subscription.isUsable() && !sender.noNotify && (grant = waiting.byNotify()) != Grant.NO_NOTIFY) {
            return grant;
        }
        return waiting.byBlocking();
    }
}
