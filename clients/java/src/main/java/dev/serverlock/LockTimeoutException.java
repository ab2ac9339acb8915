package dev.serverlock;

/**
 * Somebody else still had the lock when the wait ended, or the server refused for all that time.
 *
 * <p>It is not a {@link java.util.concurrent.TimeoutException}: that one is checked, and lock errors are unchecked.
 */
public class LockTimeoutException extends LockRefusedException {
    private static final long serialVersionUID = 1;

    LockTimeoutException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "timeout";
    }
}
