package dev.serverlock.spi;

/** The application's own client, for one server, or as a {@link Cluster} for several. */
public interface Server {
    /**
     * Finds the server that has the key. The same server always yields an equal object.
     *
     * @param key the key
     * @return the server
     * @throws ServerException if it is not known now
     */
    Node node(byte[] key);

    /** {@return whether its servers are of the type {@link AsyncNode}} */
    default boolean isAsync() {
        return false;
    }
}
