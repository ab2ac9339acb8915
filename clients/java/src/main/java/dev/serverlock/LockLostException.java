package dev.serverlock;

/** The lock is no longer held, or no longer certain to be held. */
public class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * The text is "the lock KEY: REASON".
     *
     * @param key the name of the lock; "" if the error is not about one lock
     * @param reason why it happened
     * @param cause the underlying error, or null
     */
    public LockLostException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "lost";
    }
}
