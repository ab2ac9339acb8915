package dev.serverlock.internal.wire;

import java.util.concurrent.CompletableFuture;

/** No connection, or no reply in time. */
public final class ConnectionLost extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final boolean isFinal;
    private final transient CompletableFuture<Object> late;

    public ConnectionLost(String text, Throwable cause, boolean isFinal, CompletableFuture<Object> late) {
        super(text, cause, false, false);
        this.isFinal = isFinal;
        this.late = late;
    }

    public ConnectionLost(String text) {
        this(text, null, false, null);
    }

    /** Whether trying again is pointless, because the server does not let this user in. */
    public boolean isFinal() {
        return isFinal;
    }

    /** Completes if the reply still arrives on a shared connection. Null if it cannot arrive. */
    public CompletableFuture<Object> late() {
        return late;
    }
}
