package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import java.time.Duration;
import java.util.List;
import java.util.function.Function;

/** A connection of the locks' own, in place of the shared one for as long as that one owes a reply. */
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
     * The shared one answers again. It is closed once nothing is on its way: a thread of Lettuce calls this, and must
     * not wait.
     */
    synchronized void end() {
        if (connection != null) {
            connection.closeWhenIdle();
            connection = null;
        }
    }
}
