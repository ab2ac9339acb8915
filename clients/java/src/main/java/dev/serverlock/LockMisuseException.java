package dev.serverlock;

/** The lock again within its own scope, closed Locks, or a lock that was released before. */
public class LockMisuseException extends LockException {
    private static final long serialVersionUID = 1;

    LockMisuseException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "misuse";
    }
}
