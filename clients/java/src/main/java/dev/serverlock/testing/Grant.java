package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Words;
import java.util.Arrays;

/** One holder of one key. */
final class Grant {
    /** How long after its lease a grant still keeps others out. */
    static final long MARGIN = Clock.SECOND;

    final long token;
    final String id;
    final String owner;
    final boolean isAlone;
    /** A margin after the end of the lease. */
    long until;
    /** The connection with which it ends, or null. */
    MemoryConnection session;
    /** The holder whose place it took because its lease had expired, or null. */
    Grant before;
    /** An attempt with NOTIFY has not claimed it yet. */
    boolean isPending;

    Grant(Ask ask, long token, long now) {
        this.token = token;
        id = ask.id();
        owner = ask.owner();
        isAlone = ask.isAlone();
        until = until(ask.lease(), now);
    }

    static long until(long lease, long now) {
        return Clock.after(now, Clock.after(lease, MARGIN));
    }

    boolean isLive(long now) {
        return now < until;
    }

    /** What is left of the lease, in milliseconds. */
    long lease(long now) {
        return isPending ? 0 : Math.max(0, until - MARGIN - now) / Clock.MILLISECOND;
    }

    /** The reply to its attempt: the token, or the details. */
    Object reply(Ask ask, long now) {
        if (!ask.wantsDetails()) {
            return token;
        }
        if (before == null) {
            return Arrays.asList(token, null, null, null);
        }
        long overdue = Math.max(0, now - before.until) / Clock.MILLISECOND;
        return Arrays.asList(token, overdue, before.token, before.owner == null ? null : Words.bytes(before.owner));
    }
}
