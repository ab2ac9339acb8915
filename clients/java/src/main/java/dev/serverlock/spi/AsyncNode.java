package dev.serverlock.spi;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A server to which commands can be sent without a thread that waits for the replies. */
public interface AsyncNode extends Node {
    /**
     * Like {@link #exchange}, but does not block. The result completes in time, and never with an error, once the
     * results of the commands are filled in. It may complete in a thread of the library, which must not be blocked.
     *
     * @param calls the commands
     * @param timeout how long it may take
     * @return completes when the results are filled in
     */
    CompletableFuture<Void> send(List<Call> calls, Duration timeout);
}
