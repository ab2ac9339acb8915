package dev.serverlock;

/** Acquiring a lock within its own scope, using closed Locks, or releasing a lock twice. */
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
