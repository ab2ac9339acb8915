package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import java.time.Duration;
import java.util.List;
import java.util.function.Function;

/** A dedicated connection that replaces the shared connection while a reply is overdue on it. */
final class Spare {
    private final Function<Duration, LettuceConnection> dial;
    private LettuceConnection connection;

    Spare(Function<Duration, LettuceConnection> dial) {
        this.dial = dial;
    }

    void exchange(List<Call> calls, Duration timeout) {
        LettuceConnection open;
        try {
            open = open(timeout);
        } catch (RuntimeException error) {
            RuntimeException read = Sent.read(error);
            calls.forEach(call -> call.error = read);
            return;
        }
        open.exchange(calls, timeout);
    }

    private synchronized LettuceConnection open(Duration timeout) {
        if (connection == null || !connection.isOpen()) {
            connection = dial.apply(timeout);
        }
        return connection;
    }

    /**
     * Called when the shared connection replies again. Closes this one once nothing is pending, without blocking a
     * Lettuce thread.
     */
    synchronized void end() {
        if (connection != null) {
            connection.closeWhenIdle();
            connection = null;
        }
    }
}
