package dev.serverlock;

/** The wait would close a cycle of clients that wait for one another's session locks. */
public class LockDeadlockException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * The text is "the lock KEY: REASON".
     *
     * @param key the name of the lock; "" if the error is not about one lock
     * @param reason why it happened
     * @param cause the underlying error, or null
     */
    public LockDeadlockException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "deadlock";
    }
}
