package dev.serverlock.spi;

import java.util.concurrent.CompletableFuture;

/** A dedicated connection whose end is noticed at once, even between commands. */
public interface WatchedConnection extends Connection {
    /**
     * Sends one command. A caller that no longer waits for the reply leaves the connection open, but until the reply
     * has come, nobody sends another command.
     *
     * @param words the command and its arguments
     * @return the reply, as in {@link Call#value}, or a {@link ReplyException} or {@link ServerException}
     */
    CompletableFuture<Object> send(byte[][] words);
}
