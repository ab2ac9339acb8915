package dev.serverlock.spi;

import java.time.Duration;

/** A dedicated connection, opened by the manager outside the application's pool. */
public interface Connection extends AutoCloseable {
    /**
     * Sends one command and waits for the reply. A {@link ServerException} and an interrupt close the connection.
     *
     * @param words the command and its arguments
     * @param timeout how long it may take
     * @return the reply, as in {@link Call#value}
     * @throws ReplyException if the reply is an error
     * @throws ServerException if there is no reply
     * @throws InterruptedException if the thread is interrupted during the call
     */
    Object call(byte[][] words, Duration timeout) throws InterruptedException;

    /** {@return false once the connection is known to have ended} */
    boolean isOpen();

    /**
     * Runs the callback once when the connection ends for any reason, or at once if it has already ended. The end of an
     * unwatched connection is noticed when a call or {@link #close} ends it.
     *
     * @param ended the callback
     */
    void onEnd(Runnable ended);

    /** Closes the connection. Commands still waiting for a reply will not get one. */
    @Override
    void close();
}
