package dev.serverlock.internal.wire;

import java.util.regex.Pattern;

/** An error reply from the server. */
public final class ReplyError extends RuntimeException {
    private static final long serialVersionUID = 1;

    // Within a script the text says "unknown redis command".
    private static final Pattern UNKNOWN = Pattern.compile("^ERR unknown (redis )?command", Pattern.CASE_INSENSITIVE);

    private final String code;

    public ReplyError(String text) {
        super(text, null, false, false);
        int end = 0;
        while (end < text.length() && text.charAt(end) >= 'A' && text.charAt(end) <= 'Z') {
            end++;
        }
        code = end > 0 && end < text.length() && text.charAt(end) == ' ' ? text.substring(0, end) : "ERR";
    }

    /** The first word of the text, or ERR if that is not a code. */
    public String code() {
        return code;
    }

    public boolean isUnknownCommand() {
        return UNKNOWN.matcher(getMessage()).find();
    }
}
