package dev.serverlock.internal.command;

import dev.serverlock.LockArgumentException;
import dev.serverlock.Predecessor;
import dev.serverlock.internal.wire.Words;
import java.time.Duration;
import java.util.List;

/**
 * A reply to ACQUIRE: a grant, a result, or one of the constants, which are compared by identity.
 *
 * @param token 0 for a result from the module
 * @param predecessor null if the lock was free, or no details were requested
 * @param sent when the request was sent
 * @param result what another holder computed; null for a plain grant
 */
public record Grant(long token, Predecessor predecessor, boolean isPortable, long sent, byte[] result) {
    /** The server replied WAITING: the attempt has a place in the queue. */
    public static final Grant WAITING = new Grant(0, null, false, 0, null);
    /** This server or this user cannot use NOTIFY. */
    public static final Grant NO_NOTIFY = new Grant(0, null, false, 0, null);
    /** It is time to try the module again. */
    public static final Grant ASK_MODULE = new Grant(0, null, false, 0, null);
    /** Other attempts wait too. */
    public static final Grant NOT_ALONE = new Grant(0, null, false, 0, null);

    /** Reads a reply other than nil. */
    public static Grant read(Object reply, long sent, String name, boolean isPortable) {
        if (reply instanceof Long token && token > 0) {
            return new Grant(token, null, isPortable, sent, null);
        }
        if (reply instanceof List<?> details
                && details.size() == 4
                && details.get(0) instanceof Long token
                && token > 0) {
            return new Grant(token, predecessor(details), isPortable, sent, null);
        }
        if (!isPortable && reply instanceof List<?> one && one.size() == 1 && one.get(0) instanceof byte[] result) {
            return new Grant(0, null, isPortable, sent, result);
        }
        if (Words.text(reply).equals("WAITING") || pause(reply) >= 0) {
            return WAITING;
        }
        throw new LockArgumentException(name, "the server replied " + Words.text(reply), null);
    }

    /** The milliseconds after which to ask the script again if no message comes; -1 for any other reply. */
    public static long pause(Object reply) {
        boolean isWaiting = reply instanceof List<?> pair
                && pair.size() == 2
                && pair.get(0) instanceof byte[] word
                && Words.text(word).equals("WAITING");
        return isWaiting && ((List<?>) reply).get(1) instanceof Long pause ? pause : -1;
    }

    /** The details are token, overdue-ms, previous token and previous owner. */
    private static Predecessor predecessor(List<?> details) {
        if (!(details.get(1) instanceof Long overdue)) {
            return null;
        }
        long token = details.get(2) instanceof Long number ? number : 0;
        return new Predecessor(Duration.ofMillis(overdue), token, Words.text(details.get(3)));
    }

    /** A copy whose lease counts from a later request. */
    public Grant withSent(long sent) {
        return new Grant(token, predecessor, isPortable, sent, result);
    }

    /** A grant of the portable script, after which a result was found. */
    public Grant withResult(byte[] result) {
        return new Grant(token, predecessor, isPortable, sent, result);
    }
}
