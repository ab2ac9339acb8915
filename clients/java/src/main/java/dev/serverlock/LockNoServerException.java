package dev.serverlock;

/** No connection to a server, or no reply in time. */
public class LockNoServerException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * The text is "the lock KEY: REASON".
     *
     * @param key the name of the lock; "" if the error is not about one lock
     * @param reason why it happened
     * @param cause the underlying error, or null
     */
    public LockNoServerException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "no_server";
    }
}
