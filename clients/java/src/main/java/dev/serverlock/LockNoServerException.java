package dev.serverlock;

/** No connection to a server, or no reply in time. */
public class LockNoServerException extends LockException {
    private static final long serialVersionUID = 1;

    LockNoServerException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "no_server";
    }
}
