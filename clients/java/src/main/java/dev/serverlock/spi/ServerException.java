package dev.serverlock.spi;

/** No connection, or no reply in time. */
public final class ServerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Takes over an error of a library.
     *
     * @param text the reason
     * @param cause the error of the library; null if there is none
     */
    public ServerException(String text, Throwable cause) {
        super(text, cause);
    }
}
