package dev.serverlock.spi;

/** A client of several servers. */
public interface Cluster extends Server {
    /**
     * Gives the server at an address, as MOVED and ASK name it.
     *
     * @param address host and port
     * @return its server
     * @throws ServerException if it cannot be reached
     */
    Node nodeAt(String address);

    /** Asks again which server has which keys. The next command reports a failure. */
    void refresh();
}
