package dev.serverlock.spi;

import java.util.concurrent.CompletableFuture;

/** One command and its result. */
public final class Call {
    /** The command and its arguments. */
    public final byte[][] words;
    /** The reply: null, Long, Double, Boolean, byte[], or a List of these; a map is a List of its keys and values. */
    public Object value;
    /** Null after a reply, {@link ReplyException} after an error reply, any other error if there is no reply. */
    public RuntimeException error;
    /** After an error, completes if the reply still arrives on a shared connection. Null if it cannot arrive. */
    public CompletableFuture<Object> late;
    /** Whether the library may have sent it twice. */
    public boolean wasResent;

    /**
     * A call that has not been sent yet.
     *
     * @param words the command and its arguments
     */
    public Call(byte[][] words) {
        this.words = words;
    }
}
