package dev.serverlock.lettuce;

import dev.serverlock.spi.Call;
import java.time.Duration;
import java.util.List;
import java.util.function.Function;

/** A connection of the locks' own, in place of the shared one for as long as that one owes a reply. */
final class Spare {
    private final Function<Duration, LettuceLine> dial;
    private LettuceLine line;

    Spare(Function<Duration, LettuceLine> dial) {
        this.dial = dial;
    }

    void exchange(List<Call> calls, Duration timeout) {
        LettuceLine open;
        try {
            open = open(timeout);
        } catch (RuntimeException error) {
            RuntimeException read = Sent.read(error);
            calls.forEach(call -> call.error = read);
            return;
        }
        open.exchange(calls, timeout);
    }

    private synchronized LettuceLine open(Duration timeout) {
        if (line == null || !line.isOpen()) {
            line = dial.apply(timeout);
        }
        return line;
    }

    /**
     * The shared one answers again. It is closed once nothing is on its way: a thread of Lettuce calls this, and must not
     * wait.
     */
    synchronized void end() {
        if (line != null) {
            line.closeWhenIdle();
            line = null;
        }
    }
}
