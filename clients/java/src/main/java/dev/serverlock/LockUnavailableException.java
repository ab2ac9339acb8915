package dev.serverlock;

/** The server grants nothing now, or not this, or the module is needed and not loaded. */
public class LockUnavailableException extends LockException {
    private static final long serialVersionUID = 1;

    LockUnavailableException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "unavailable";
    }
}
