package dev.serverlock.internal.once;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import java.util.List;

/**
 * What is known about a server's clock, in nanoseconds.
 *
 * @param offset the server's time since the beginning of 1970, minus the local clock
 * @param doubt by how much the offset may be wrong
 * @param asked when the reply arrived, by the local clock
 */
public record Estimate(long offset, long doubt, long asked) {
    /** An estimate that may be off by more than this is used, but not kept. */
    static final long MOST_DOUBT = 250 * Clock.MILLISECOND;

    private static final long MICROSECOND = 1_000;

    /** Whether it is accurate enough to be kept. */
    boolean isGood() {
        return doubt <= MOST_DOUBT;
    }

    /** Whether it is too old, or was never accurate enough, to be used after a long body. */
    public boolean isOlderThan(long age, long now) {
        return now > asked + age || !isGood();
    }

    /** Reads a reply to TIME. The server read its clock at some moment between sent and received. */
    static Estimate read(Object reply, long sent, long received) {
        if (reply instanceof List<?> pair && pair.size() == 2) {
            try {
                long seconds = Long.parseLong(Words.text(pair.get(0)));
                long micros = Long.parseLong(Words.text(pair.get(1)));
                long server = Math.addExact(Math.multiplyExact(seconds, Clock.SECOND), micros * MICROSECOND);
                return new Estimate(server - (sent + received) / 2, (received - sent) / 2, received);
            } catch (ArithmeticException | NumberFormatException unexpected) {
                // See below.
            }
        }
        throw new ReplyError("ERR unexpected reply " + Words.text(reply) + " to TIME");
    }
}
