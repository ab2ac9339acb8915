package dev.serverlock;

/** The wait would close a circle of clients that wait for each other's session locks. */
public class LockDeadlockException extends LockException {
    private static final long serialVersionUID = 1;

    LockDeadlockException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "deadlock";
    }
}
