package dev.serverlock.opentelemetry;

import dev.serverlock.Hooks;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import java.time.Duration;

/**
 * OpenTelemetry metrics for locks, to be copied: {@code Locks.builder(server).hooks(new OpenTelemetryHooks(meter))}.
 * Keys are not among the attributes, because there may be any number of them.
 */
public final class OpenTelemetryHooks implements Hooks {
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("lock.outcome");

    private final DoubleHistogram waits;
    private final DoubleHistogram holds;
    private final LongCounter losses;

    /**
     * Creates the instruments.
     *
     * @param meter their meter
     */
    public OpenTelemetryHooks(Meter meter) {
        waits = meter.histogramBuilder("lock.wait.duration").setUnit("s").build();
        holds = meter.histogramBuilder("lock.hold.duration").setUnit("s").build();
        losses = meter.counterBuilder("lock.lost").build();
    }

    private static void record(DoubleHistogram into, Duration span, String outcome) {
        into.record(span.toNanos() / 1e9, Attributes.of(OUTCOME, outcome));
    }

    @Override
    public void granted(String key, Duration waited) {
        record(waits, waited, "granted");
    }

    @Override
    public void refused(String key, Duration waited, LockException why) {
        record(waits, waited, why.getClass().getSimpleName());
    }

    @Override
    public void lost(String key, Duration held, LockLostException why) {
        losses.add(1);
    }

    @Override
    public void released(String key, Duration held, boolean inTime) {
        record(holds, held, inTime ? "in_time" : "too_late");
    }
}
