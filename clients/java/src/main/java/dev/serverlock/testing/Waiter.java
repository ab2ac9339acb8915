package dev.serverlock.testing;

import java.util.concurrent.CompletableFuture;

/** An attempt in a queue. One that does not wait at the moment has a place reserved there, which delays nobody. */
final class Waiter {
    /** Of two attempts, the one with the smaller number came first. */
    final long arrival;

    Ask ask;
    /** In whose queue it is, or null. */
    Key at;

    boolean isWaiting;
    /** The reply to a command that blocks, and its connection. Null if it waits with NOTIFY. */
    CompletableFuture<Object> reply;

    MemoryConnection connection;
    /** Ends its wait. */
    ManualClock.Alarm alarm;
    /** Since when its place is reserved. */
    long left;

    Waiter(long arrival) {
        this.arrival = arrival;
    }

    void block(MemoryConnection on) {
        connection = on;
        reply = new CompletableFuture<>();
    }

    void stop() {
        isWaiting = false;
        connection = null;
        reply = null;
    }
}
