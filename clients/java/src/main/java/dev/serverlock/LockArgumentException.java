package dev.serverlock;

/** An argument is wrong, or the key holds something that is no lock. */
public class LockArgumentException extends LockException {
    private static final long serialVersionUID = 1;

    LockArgumentException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "argument";
    }
}
