package dev.serverlock;

/** Somebody else still had the lock when the wait ended, or the server was changing all that time. */
public class LockTimeoutException extends LockRefusedException {
    private static final long serialVersionUID = 1;

    LockTimeoutException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }
}
