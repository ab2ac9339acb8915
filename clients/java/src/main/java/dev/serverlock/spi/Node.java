package dev.serverlock.spi;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/** One server, behind the application's connections. */
public interface Node {
    /**
     * Sends the calls over one connection of the application's, in order, and fills in what becomes of them. Each is
     * sent at most once. Returns in time; interrupts wait until then. A connection that nobody else uses is closed if a
     * reply is still to come; on one that is shared, the call has {@link Call#late} then.
     *
     * @param calls what to send
     * @param timeout how long it may take
     */
    void exchange(List<Call> calls, Duration timeout);

    /**
     * Tells whether all exchanges share one connection, so that they need not take turns.
     *
     * @return whether they do
     */
    boolean isShared();

    /**
     * Opens a connection of its own, with the password, database and TLS of the others. One caller at a time uses it.
     *
     * @param isWatched whether its end is noticed at once, also while nobody calls
     * @param timeout how long it may take
     * @return the connection
     * @throws ServerException if there is none
     */
    Connection dial(boolean isWatched, Duration timeout);

    /**
     * Opens a connection of its own that is subscribed to a channel.
     *
     * @param channel the channel
     * @param heard called with each message, in order
     * @param timeout how long it may take
     * @return the connection, once the subscription is confirmed
     * @throws ServerException if there is none
     */
    Connection subscribe(String channel, Consumer<String> heard, Duration timeout);
}
