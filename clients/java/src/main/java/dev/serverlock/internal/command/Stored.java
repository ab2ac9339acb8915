package dev.serverlock.internal.command;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Words;
import java.util.Arrays;

/**
 * The result that a holder stores for those that wait for the lock without the module.
 *
 * @param token that of its grant; 0 if there is none
 * @param value null if there is none
 */
public record Stored(long token, byte[] value) {
    private static final Stored NONE = new Stored(0, null);
    private static final int LONGEST = 65_536;
    private static final int LONGEST_TOKEN = 18; // in digits

    /** Returns the words that read a lock's result; null if it has no key for one. */
    public static byte[][] get(Request request) {
        byte[] key = Queues.result(request.key());
        return key == null ? null : new Words(2).add("GET").add(key).done();
    }

    /** Returns the words that store a result; null if that cannot be done. */
    public static byte[][] set(Request request, long token, byte[] value) {
        byte[] key = Queues.result(request.key());
        if (key == null || value.length > LONGEST) {
            return null;
        }
        byte[] head = Words.bytes(token + " ");
        byte[] text = Arrays.copyOf(head, head.length + value.length);
        System.arraycopy(value, 0, text, head.length, value.length);
        return new Words(5)
                .add("SET")
                .add(key)
                .add(text)
                .add("PX")
                .add(Clock.milliseconds(request.lease()))
                .done();
    }

    /** Reads the reply to GET. */
    public static Stored read(Object reply) {
        if (!(reply instanceof byte[] text)) {
            return NONE;
        }
        long token = 0;
        for (int at = 0; at < text.length && at <= LONGEST_TOKEN; at++) {
            if (text[at] == ' ') {
                return new Stored(token, Arrays.copyOfRange(text, at + 1, text.length));
            }
            if (text[at] < '0' || text[at] > '9') {
                return NONE;
            }
            token = 10 * token + text[at] - '0';
        }
        return NONE;
    }

    /** Whether this result was stored after the other one was read. */
    public boolean isNewerThan(Stored before) {
        return value != null && token > before.token;
    }
}
