package dev.serverlock;

/** The superclass of all errors of this package. The message names the lock. */
public abstract class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The key, or the keys, in quotes. */
    private final String key;

    LockException(String key, String reason, Throwable cause) {
        super(key.isEmpty() ? "serverlock: " + reason : "the lock " + key + ": " + reason, cause);
        this.key = key;
    }

    /** {@return the key, or the keys, in quotes; "" if the error is not about one lock} */
    public String key() {
        return key;
    }

    /**
     * The kind of error, for metrics and logs. It is the same in all languages of this package and in all versions.
     *
     * @return "refused", "timeout", "lost", "deadlock", "unavailable", "denied", "no_server", "argument" or "misuse"
     */
    public abstract String code();
}
