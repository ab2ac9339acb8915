package dev.serverlock;

/** The server does not allow this user the command, the key or the connection. */
public class LockDeniedException extends LockException {
    private static final long serialVersionUID = 1;

    LockDeniedException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "denied";
    }
}
