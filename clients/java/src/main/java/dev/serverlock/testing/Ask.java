package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.ReplyException;
import java.util.List;

/**
 * What an attempt asks for. Times are in nanoseconds.
 *
 * @param channel that of NOTIFY, or null
 * @param most how many holders there may be, itself included; 0 if it holds the lock alone
 */
record Ask(
        List<String> keys,
        long lease,
        long waiting,
        String id,
        String owner,
        String channel,
        int most,
        boolean isSession,
        boolean wantsDetails,
        boolean wantsResult,
        boolean isRecovery) {
    private static final int MOST_HOLDERS = 4096;

    /** Reads the options after the keys. */
    static Ask read(List<String> keys, List<String> words, boolean isRecovery) {
        long lease = 0;
        long waiting = 0;
        String id = "";
        String owner = null;
        String channel = null;
        int most = 0;
        boolean isSession = false;
        boolean wantsDetails = isRecovery;
        boolean wantsResult = false;
        for (int at = 0; at < words.size(); at++) {
            switch (words.get(at)) {
                case "PX" -> lease = Long.parseLong(words.get(++at)) * Clock.MILLISECOND;
                case "WAIT" -> waiting = Long.parseLong(words.get(++at)) * Clock.MILLISECOND;
                case "ID" -> id = words.get(++at);
                case "OWNER" -> owner = words.get(++at);
                case "NOTIFY" -> channel = words.get(++at);
                case "LIMIT" -> most = Integer.parseInt(words.get(++at));
                case "SHARED" -> most = MOST_HOLDERS;
                case "SESSION" -> isSession = true;
                case "DETAILS" -> wantsDetails = true;
                case "RESULT" -> wantsResult = true;
                default -> throw new ReplyException("ERR syntax error: the server in memory lacks " + words.get(at));
            }
        }
        return new Ask(
                keys, lease, waiting, id, owner, channel, most, isSession, wantsDetails, wantsResult, isRecovery);
    }

    boolean isAlone() {
        return most == 0;
    }
}
