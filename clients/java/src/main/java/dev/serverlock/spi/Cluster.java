package dev.serverlock.spi;

/** A client that knows several servers. */
public interface Cluster extends Server {
    /**
     * Gives the server at an address, as MOVED and ASK name it.
     *
     * @param address host and port
     * @return its server
     * @throws ServerException if it cannot be reached
     */
    Node nodeAt(String address);

    /** Finds out anew which server has which keys. Failures are found by the next call. */
    void refresh();
}
