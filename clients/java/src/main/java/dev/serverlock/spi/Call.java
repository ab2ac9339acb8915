package dev.serverlock.spi;

import java.util.concurrent.CompletableFuture;

/** One command, and what became of it. */
public final class Call {
    /** The command and its arguments. */
    public final byte[][] words;
    /** The reply: null, Long, Double, Boolean, byte[], or a List of such; a map is a List of its keys and values. */
    public Object value;
    /** Null, if there was a reply. {@link ReplyException}: that was the reply. Any other: there was none. */
    public RuntimeException error;
    /** With an error: the reply may still come, or fail, on a connection that others share. Null: it cannot. */
    public CompletableFuture<Object> late;
    /** Whether the library may have sent it twice. */
    public boolean wasResent;

    /**
     * A call that is not sent yet.
     *
     * @param words the command and its arguments
     */
    public Call(byte[][] words) {
        this.words = words;
    }
}
