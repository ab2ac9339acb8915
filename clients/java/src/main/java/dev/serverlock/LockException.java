package dev.serverlock;

/** The error of all methods of this package; each kind has a class of its own. The text names the lock. */
public abstract class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The name of the lock. */
    private final String key;

    LockException(String key, String reason, Throwable cause) {
        super(key.isEmpty() ? "serverlock: " + reason : "the lock " + key + ": " + reason, cause);
        this.key = key;
    }

    /**
     * The key of the lock, or its keys, quoted.
     *
     * @return the name of the lock
     */
    public String key() {
        return key;
    }

    /**
     * The kind of error, for metrics and logs: the same in all languages of this package, and in all versions.
     *
     * @return "refused", "timeout", "lost", "deadlock", "unavailable", "denied", "no_server", "argument" or "misuse"
     */
    public abstract String code();
}
