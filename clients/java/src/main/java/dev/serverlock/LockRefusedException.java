package dev.serverlock;

/** Somebody else has the lock, or an operator cancelled the wait. */
public class LockRefusedException extends LockException {
    private static final long serialVersionUID = 1;

    LockRefusedException(String key, String reason, Throwable cause) {
        super(key, reason, cause);
    }

    @Override
    public String code() {
        return "refused";
    }
}
