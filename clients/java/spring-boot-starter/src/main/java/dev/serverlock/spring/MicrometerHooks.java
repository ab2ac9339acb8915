package dev.serverlock.spring;

import dev.serverlock.Hooks;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Micrometer's metrics of locks: the timers {@code serverlock.wait} and {@code serverlock.hold}, both with the tag
 * {@code outcome}, the counter {@code serverlock.losses} and the gauge {@code serverlock.held}. Keys are not among the
 * tags, because there may be any number of them.
 */
public final class MicrometerHooks implements Hooks {
    private final MeterRegistry registry;
    private final Counter losses;
    private final AtomicInteger held = new AtomicInteger();

    /**
     * Registers the metrics.
     *
     * @param registry where
     */
    public MicrometerHooks(MeterRegistry registry) {
        this.registry = registry;
        losses = Counter.builder("serverlock.losses")
                .description("Locks that were lost while they were held")
                .register(registry);
        Gauge.builder("serverlock.held", held, AtomicInteger::get)
                .description("Locks that this process holds")
                .strongReference(true)
                .register(registry);
    }

    private void record(String name, String description, String outcome, Duration span) {
        Timer.builder(name)
                .description(description)
                .tag("outcome", outcome)
                .register(registry)
                .record(span);
    }

    private void waited(String outcome, Duration span) {
        record("serverlock.wait", "From asking for a lock to the result", outcome, span);
    }

    @Override
    public Watch began(List<String> keys) {
        return new Watch() {
            @Override
            public void granted(String command, long token, Duration waited) {
                held.incrementAndGet();
                waited("granted", waited);
            }

            @Override
            public void failed(String command, Duration waited, Exception why) {
                waited(why instanceof LockException error ? error.code() : "cancelled", waited);
            }

            @Override
            public void result(String command, Duration waited) {
                waited("result", waited);
            }

            @Override
            public void ended(End end, Duration span, LockLostException why) {
                held.decrementAndGet();
                if (end == End.LOST) {
                    losses.increment();
                }
                String outcome = end.name().toLowerCase(Locale.ROOT);
                record("serverlock.hold", "From the grant of a lock to its end", outcome, span);
            }
        };
    }
}
