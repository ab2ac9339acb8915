package dev.serverlock.spi;

/** No connection, or no reply in time. */
public final class ServerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Wraps an error from a library.
     *
     * @param text the reason
     * @param cause the library's error, or null
     */
    public ServerException(String text, Throwable cause) {
        super(text, cause);
    }
}
