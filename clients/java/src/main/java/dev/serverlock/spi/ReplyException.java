package dev.serverlock.spi;

/** An error reply from the server, with its error code. */
public final class ReplyException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Wraps an error reply.
     *
     * @param text the text of the reply, with its code
     */
    public ReplyException(String text) {
        super(text, null, false, false);
    }
}
