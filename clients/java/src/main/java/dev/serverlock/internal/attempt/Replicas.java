package dev.serverlock.internal.attempt;

import dev.serverlock.LockUnavailableException;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import java.util.List;

/** Confirms that replicas and disks have a grant. */
final class Replicas {
    private static final byte[] WAIT = Words.bytes("WAIT");
    private static final byte[] WAITAOF = Words.bytes("WAITAOF");

    private Replicas() {}

    /** Throws unless enough replicas and disks have the grant in time. timeout: for one reply, in nanoseconds. */
    static void await(Sender sender, long timeout) throws InterruptedException {
        Request request = sender.request;
        if (!sender.hasConnection()) {
            throw new ConnectionLost("the connection that got the grant has closed");
        }
        long patience = request.within() + timeout;
        long within = Clock.milliseconds(request.within());
        if (request.replicas() > 0) {
            Object reply =
                    ask(sender, new Words(3).add(WAIT).add(request.replicas()).add(within), patience);
            if (!(reply instanceof Long have) || have < request.replicas()) {
                throw new LockUnavailableException(
                        request.name(),
                        reply + " of " + request.replicas() + " replicas have the grant; the lock was released",
                        null);
            }
        }
        if (request.isFsync()) {
            Words words =
                    new Words(4).add(WAITAOF).add(1).add(request.replicas()).add(within);
            long have = 0;
            if (ask(sender, words, patience) instanceof List<?> counts) {
                have = counts.stream()
                        .mapToLong(count -> count instanceof Long number ? number : 0)
                        .sum();
            }
            if (have < 1 + request.replicas()) {
                String counted = have + " of " + (1 + request.replicas()) + " servers wrote the grant to disk";
                throw new LockUnavailableException(request.name(), counted + "; the lock was released", null);
            }
        }
    }

    /** A server without WAITAOF, or without an AOF, cannot confirm the grant. */
    private static Object ask(Sender sender, Words words, long patience) throws InterruptedException {
        try {
            return sender.callOnConnection(words.done(), patience);
        } catch (ReplyError reply) {
            if (!reply.code().equals("ERR")) {
                throw reply;
            }
            throw new LockUnavailableException(
                    sender.request.name(), "the grant cannot be confirmed: " + reply.getMessage(), reply);
        }
    }
}
