package dev.serverlock.spi;

import java.time.Duration;

/** A dedicated connection: the manager opened it, outside the application's pool. */
public interface Connection extends AutoCloseable {
    /**
     * Sends one command and waits for the reply. After a {@link ServerException}, and an interrupt, the connection is
     * closed.
     *
     * @param words the command and its arguments
     * @param timeout how long it may take
     * @return the reply, as in {@link Call#value}
     * @throws ReplyException if the reply is an error
     * @throws ServerException if there is none
     * @throws InterruptedException if the thread is interrupted meanwhile
     */
    Object call(byte[][] words, Duration timeout) throws InterruptedException;

    /**
     * Tells whether it is not known to have ended.
     *
     * @return whether it is open
     */
    boolean isOpen();

    /**
     * Runs the callback once when the connection has ended, for any reason; now if it has. On a connection that is not
     * watched, that is when a call or {@link #close} ends it.
     *
     * @param ended what to call
     */
    void onEnd(Runnable ended);

    /** Closes the connection. After that no command that was sent before gets a reply. */
    @Override
    void close();
}
