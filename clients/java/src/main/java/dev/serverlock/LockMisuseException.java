package dev.serverlock;

/** The application acquired a lock within its own scope, used closed {@link Locks}, or released a lock twice. */
public class LockMisuseException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * The text is "the lock KEY: REASON".
     *
     * @param key the name of the lock; "" if the error is not about one lock
     * @param reason why it happened
     * @param cause the underlying error, or null
     */
    public LockMisuseException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "misuse";
    }
}
