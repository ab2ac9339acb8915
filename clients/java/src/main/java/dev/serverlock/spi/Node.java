package dev.serverlock.spi;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/** One server, behind the application's connections. */
public interface Node {
    /**
     * Sends the commands over one of the application's connections, in order, and fills in their results. Each is sent
     * at most once. This returns in time, and defers interrupts until then. A late reply closes a pool's connection; on
     * a shared connection it sets {@link Call#late}.
     *
     * @param calls the commands
     * @param timeout how long it may take
     */
    void exchange(List<Call> calls, Duration timeout);

    /** {@return whether all exchanges share one connection, so that they need not take turns} */
    boolean isShared();

    /**
     * Opens a dedicated connection, with the password, database and TLS of the application's connections. One caller at
     * a time uses it.
     *
     * @param timeout how long it may take
     * @return the connection
     * @throws ServerException if it cannot be opened
     */
    Connection dial(Duration timeout);

    /**
     * Opens a dedicated connection like {@link #dial}, and watches it.
     *
     * @param timeout how long it may take
     * @return the connection
     * @throws ServerException if it cannot be opened
     */
    WatchedConnection watch(Duration timeout);

    /**
     * Opens a dedicated connection that is subscribed to a channel.
     *
     * @param channel the channel
     * @param onMessage called with each message, in order
     * @param timeout how long it may take
     * @return the connection, once the subscription is confirmed
     * @throws ServerException if it cannot be opened
     */
    Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout);
}
