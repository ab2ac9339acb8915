package dev.serverlock.internal.runtime;

import java.util.concurrent.atomic.AtomicLong;

/** System clocks that stand still until the test moves them. */
public final class MovedClock implements SystemClock.Source {
    private final AtomicLong time = new AtomicLong();

    @Override
    public long monotonic() {
        return time.get();
    }

    @Override
    public long wall() {
        return time.get();
    }

    /**
     * Lets time pass.
     *
     * @param nanos how long
     */
    public void pass(long nanos) {
        time.addAndGet(nanos);
    }
}
