package dev.serverlock.spi;

/** No connection, or no reply in time. */
public final class ServerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * A failure of a connection.
     *
     * @param text what happened
     * @param cause the error of the library; null if there is none
     */
    public ServerException(String text, Throwable cause) {
        super(text, cause);
    }
}
