package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.time.Duration;
import java.util.List;

/** A reply to ACQUIRE: a grant, or one of the constants. */
final class Grant {
    /** The server replied WAITING. */
    static final Grant WAITING = new Grant(0, 0, null, false);
    /** This server, or this user, cannot wait by NOTIFY. */
    static final Grant NO_NOTIFY = new Grant(0, 0, null, false);
    /** Other attempts wait too. */
    static final Grant NOT_ALONE = new Grant(0, 0, null, false);

    final long token;
    /** Null: the lock was free, or no details were asked for. */
    final Predecessor predecessor;

    final boolean isPortable;
    /** When the request of this reply was sent. */
    long sent;
    /** Of a session. */
    Connection connection;

    private Grant(long token, long sent, Predecessor predecessor, boolean isPortable) {
        this.token = token;
        this.sent = sent;
        this.predecessor = predecessor;
        this.isPortable = isPortable;
    }

    /** Reads a reply other than nil. */
    static Grant read(Object reply, long sent, String name, boolean isPortable) {
        if (reply instanceof Long token && token > 0) {
            return new Grant(token, sent, null, isPortable);
        }
        if (reply instanceof List<?> details
                && details.size() == 4
                && details.get(0) instanceof Long token
                && token > 0) {
            return new Grant(token, sent, predecessor(details), isPortable);
        }
        if (Words.text(reply).equals("WAITING")) {
            return WAITING;
        }
        throw new LockArgumentException(name, "the server answered " + Words.text(reply), null);
    }

    /** Of token, overdue-ms, previous token and previous owner. */
    private static Predecessor predecessor(List<?> details) {
        if (!(details.get(1) instanceof Long overdue)) {
            return null;
        }
        long token = details.get(2) instanceof Long number ? number : 0;
        return new Predecessor(Duration.ofMillis(overdue), token, Words.text(details.get(3)));
    }
}
