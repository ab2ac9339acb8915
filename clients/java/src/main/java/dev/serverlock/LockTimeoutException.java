package dev.serverlock;

/**
 * Somebody else still had the lock when the wait ended, or the server refused to grant it for all that time.
 *
 * <p>It is not a {@link java.util.concurrent.TimeoutException}, which is checked: lock errors are unchecked.
 */
public class LockTimeoutException extends LockRefusedException {
    private static final long serialVersionUID = 1;

    /**
     * The text is "the lock KEY: REASON".
     *
     * @param key the name of the lock; "" if the error is not about one lock
     * @param reason why it happened
     * @param cause the underlying error, or null
     */
    public LockTimeoutException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "timeout";
    }
}
