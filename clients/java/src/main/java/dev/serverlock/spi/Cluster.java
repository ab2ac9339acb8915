package dev.serverlock.spi;

/** A client of several servers. */
public interface Cluster extends Server {
    /**
     * Finds a server by its address in MOVED and ASK.
     *
     * @param address host and port
     * @return the server
     * @throws ServerException if it cannot be reached
     */
    Node nodeAt(String address);

    /** Asks again which server has which keys. If that fails, the next command reports it. */
    void refresh();
}
