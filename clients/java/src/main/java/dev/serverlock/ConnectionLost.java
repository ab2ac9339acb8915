package dev.serverlock;

import java.util.concurrent.CompletableFuture;

/** No connection, or no reply in time. */
final class ConnectionLost extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Trying again is pointless: the server does not let this user in. */
    final boolean isFinal;
    /** The reply may still come, on a connection that others share; null: it cannot. */
    final transient CompletableFuture<Object> late;

    ConnectionLost(String text, Throwable cause, boolean isFinal, CompletableFuture<Object> late) {
        super(text, cause, false, false);
        this.isFinal = isFinal;
        this.late = late;
    }

    ConnectionLost(String text) {
        this(text, null, false, null);
    }
}
