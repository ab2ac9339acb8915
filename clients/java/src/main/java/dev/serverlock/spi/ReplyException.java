package dev.serverlock.spi;

/** An error that the server replied, with its code word. */
public final class ReplyException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * An error reply.
     *
     * @param text as the server said it
     */
    public ReplyException(String text) {
        super(text, null, false, false);
    }
}
