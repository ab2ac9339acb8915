package dev.serverlock.internal.wire;

import dev.serverlock.LockArgumentException;
import dev.serverlock.LockDeadlockException;
import dev.serverlock.LockDeniedException;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.LockNoServerException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.ReplyException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;

/** What server and connection errors mean for a lock. */
public final class Errors {
    private static final Pattern NO_ACCESS =
            Pattern.compile("^(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)");
    private static final Set<String> PASSING = Set.of(
            "UNBLOCKED",
            "MOVED",
            "ASK",
            "READONLY",
            "LOADING",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "MASTERDOWN",
            "BUSY",
            "MISCONF",
            "OOM",
            "NOREPLICAS",
            "GRACE",
            "BUSYLOCKS");
    /** These errors begin like a temporary one, but last. */
    private static final Pattern LASTING = Pattern.compile("^(GRACE lease|BUSYLOCKS 64 waits) ");

    /** For an attempt without a wait, and for a command for a held lock. */
    public static final long NO_WAIT = -1;

    private Errors() {}

    /** Returns the reply to a command; throws ReplyError or ConnectionLost. */
    public static Object result(Call call) {
        if (call.error == null) {
            return call.value;
        }
        throw read(call.error, call.late);
    }

    /** Translates a library's error into ReplyError or ConnectionLost. */
    public static RuntimeException read(Throwable error, CompletableFuture<Object> late) {
        if (error instanceof ReplyError reply) {
            return reply;
        }
        if (error instanceof ConnectionLost lost) {
            return lost;
        }
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ReplyException) {
                String text = String.valueOf(cause.getMessage());
                boolean isNoAccess = NO_ACCESS.matcher(text).find();
                return isNoAccess ? new ConnectionLost(text, cause, true, null) : new ReplyError(text);
            }
        }
        String text = error.getMessage() == null ? error.toString() : error.getMessage();
        return new ConnectionLost(text, error, false, late);
    }

    public static RuntimeException read(Throwable error) {
        return read(error, null);
    }

    /** Whether to try again: an attempt does so while its wait lasts, and a debt in the background. */
    public static boolean isTransient(RuntimeException error) {
        if (error instanceof ConnectionLost lost) {
            return !lost.isFinal();
        }
        return error instanceof ReplyError reply
                && PASSING.contains(reply.code())
                && !LASTING.matcher(reply.getMessage()).find();
    }

    /** The error that users get. waited: in nanoseconds, or NO_WAIT. */
    public static LockException typed(RuntimeException error, String key, long waited) {
        if (error instanceof LockException ours) {
            return ours;
        }
        String text = error.getMessage();
        if (error instanceof ConnectionLost lost) {
            return lost.isFinal()
                    ? new LockDeniedException(key, text, lost.getCause())
                    : new LockNoServerException(key, text, lost.getCause());
        }
        if (!(error instanceof ReplyError reply)) {
            throw error;
        }
        Throwable cause = new ReplyException(text);
        if (waited != NO_WAIT && isTransient(reply)) {
            return new LockTimeoutException(key, "not granted within " + ms(waited) + ": " + text, cause);
        }
        if (reply.code().equals("DEADLOCK")) {
            return new LockDeadlockException(key, text, cause);
        }
        if (reply.code().equals("NOPERM")) {
            return new LockDeniedException(key, text, cause);
        }
        if (PASSING.contains(reply.code()) || reply.code().equals("CLOCK") || reply.isUnknownCommand()) {
            return new LockUnavailableException(key, text, cause);
        }
        return new LockArgumentException(key, text, cause);
    }

    /** What an error says about its lock. */
    public static String reason(LockException why) {
        String text = why.getMessage();
        return text.substring(text.indexOf(why.key()) + why.key().length() + 2);
    }

    /** The error of a release that came too late. cause: the loss that was reported before, or null. */
    public static LockLostException releasedLate(String key, LockLostException cause) {
        String why = cause == null ? "lost: its grant had ended before it was released" : reason(cause);
        return new LockLostException(key, why, cause);
    }

    /** The same error for one more caller, with a stack trace of its own. */
    public static LockException again(LockException error) {
        String key = error.key();
        String text = reason(error);
        return switch (error.code()) {
            case "refused" -> new LockRefusedException(key, text, error);
            case "deadlock" -> new LockDeadlockException(key, text, error);
            case "unavailable" -> new LockUnavailableException(key, text, error);
            case "denied" -> new LockDeniedException(key, text, error);
            case "no_server" -> new LockNoServerException(key, text, error);
            case "argument" -> new LockArgumentException(key, text, error);
            case "misuse" -> new LockMisuseException(key, text, error);
            default -> throw new AssertionError(error);
        };
    }

    public static LockException refused(String key) {
        return new LockRefusedException(key, "somebody else has it", null);
    }

    /** For RECOVER. */
    public static LockException nothingToRecover(String key) {
        return new LockRefusedException(key, "there is nothing to recover: the lock is free", null);
    }

    public static LockException timedOut(String key, long waited) {
        return new LockTimeoutException(key, "somebody else still had it after " + ms(waited), null);
    }

    private static String ms(long nanos) {
        return nanos / Clock.MILLISECOND + " ms";
    }
}
