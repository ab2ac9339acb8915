package dev.serverlock.spi;

import java.util.concurrent.CompletableFuture;

/** A connection of the manager's own. Its end is noticed at once. */
public interface Line extends AutoCloseable {
    /**
     * Sends one command. The reply is as in {@link Call#value}; the future fails with {@link ReplyException}, or with
     * {@link ServerException} when the connection ends.
     *
     * @param words the command and its arguments
     * @return the reply
     */
    CompletableFuture<Object> send(byte[][] words);

    /**
     * Tells whether it has not ended.
     *
     * @return whether it is open
     */
    boolean isOpen();

    /**
     * Calls once, when the connection has ended, whoever ended it; at once if it has.
     *
     * @param ended what to call
     */
    void onEnd(Runnable ended);

    /** Returns when nothing that was sent before gets a reply any more. */
    @Override
    void close();
}
