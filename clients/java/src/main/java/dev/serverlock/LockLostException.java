package dev.serverlock;

/** The lock is not held any more, or not for certain. */
public class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    LockLostException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "lost";
    }
}
