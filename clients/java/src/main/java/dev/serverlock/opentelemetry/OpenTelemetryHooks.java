package dev.serverlock.opentelemetry;

import dev.serverlock.Hooks;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.LongUpDownCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import java.time.Duration;
import java.util.List;
import java.util.Locale;

/**
 * OpenTelemetry's traces and metrics of locks:
 * {@code Locks.builder(server).hooks(OpenTelemetryHooks.of(openTelemetry))}.
 *
 * <ul>
 *   <li>The span {@code lock.wait} lasts from the call to its result, and the span {@code lock.hold} from the grant to
 *       its end. Their parent is the caller's span. If the lock is lost, {@code lock.hold} has an error and the event
 *       {@code lock.lost}. It is not an error if somebody else has the lock.
 *   <li>The histograms {@code serverlock.wait.duration} and {@code serverlock.hold.duration}, in seconds; the counter
 *       {@code serverlock.losses}; {@code serverlock.held}, the locks that are held now.
 * </ul>
 *
 * <p>Spans have the key as an attribute. Metrics do not, because there may be any number of keys: see
 * {@link #withKeyAttribute}.
 */
@SuppressWarnings("exports") // see module-info.java
public final class OpenTelemetryHooks implements Hooks {
    static final String SCOPE = "dev.serverlock";
    static final String VERSION = "1.0.0";

    private static final AttributeKey<String> KEY = AttributeKey.stringKey("serverlock.key");
    private static final AttributeKey<List<String>> KEYS = AttributeKey.stringArrayKey("serverlock.keys");
    private static final AttributeKey<Long> TOKEN = AttributeKey.longKey("serverlock.token");
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("serverlock.outcome");
    private static final AttributeKey<String> SYSTEM = AttributeKey.stringKey("db.system.name");
    private static final AttributeKey<String> OPERATION = AttributeKey.stringKey("db.operation.name");
    private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");
    private static final List<Double> SECONDS = List.of(
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
            7200.0);

    private final Tracer tracer;
    private final DoubleHistogram waits;
    private final DoubleHistogram holds;
    private final LongCounter losses;
    private final LongUpDownCounter held;
    private final boolean hasKeys;

    private OpenTelemetryHooks(OpenTelemetry telemetry) {
        tracer = telemetry.getTracer(SCOPE, VERSION);
        Meter meter =
                telemetry.meterBuilder(SCOPE).setInstrumentationVersion(VERSION).build();
        waits = histogram(meter, "serverlock.wait.duration", "From asking for a lock to the result");
        holds = histogram(meter, "serverlock.hold.duration", "From the grant of a lock to its end");
        losses = meter.counterBuilder("serverlock.losses")
                .setUnit("{loss}")
                .setDescription("Locks that were lost while they were held")
                .build();
        held = meter.upDownCounterBuilder("serverlock.held")
                .setUnit("{lock}")
                .setDescription("Locks that this process holds")
                .build();
        hasKeys = false;
    }

    private OpenTelemetryHooks(OpenTelemetryHooks other, boolean hasKeys) {
        tracer = other.tracer;
        waits = other.waits;
        holds = other.holds;
        losses = other.losses;
        held = other.held;
        this.hasKeys = hasKeys;
    }

    private static DoubleHistogram histogram(Meter meter, String name, String description) {
        return meter.histogramBuilder(name)
                .setUnit("s")
                .setDescription(description)
                .setExplicitBucketBoundariesAdvice(SECONDS)
                .build();
    }

    /**
     * Creates the instruments.
     *
     * @param telemetry where
     * @return the hooks
     */
    public static OpenTelemetryHooks of(OpenTelemetry telemetry) {
        return new OpenTelemetryHooks(telemetry);
    }

    /**
     * Adds the key to the attributes of metrics. Use this only if there are few keys.
     *
     * @return a copy with this option
     */
    public OpenTelemetryHooks withKeyAttribute() {
        return new OpenTelemetryHooks(this, true);
    }

    @Override
    public Watch began(List<String> keys) {
        return new Trace(keys);
    }

    /** One attempt, and its hold. */
    private final class Trace implements Watch {
        private final List<String> keys;
        private final Context parent = Context.current();
        private final Span wait;
        private Span hold;

        Trace(List<String> keys) {
            this.keys = keys;
            wait = span("lock.wait", SpanKind.CLIENT).startSpan();
            wait.setAttribute(SYSTEM, "redis");
        }

        private SpanBuilder span(String name, SpanKind kind) {
            SpanBuilder builder = tracer.spanBuilder(name).setParent(parent).setSpanKind(kind);
            return keys.size() == 1 ? builder.setAttribute(KEY, keys.get(0)) : builder.setAttribute(KEYS, keys);
        }

        private AttributesBuilder ofMetrics() {
            AttributesBuilder builder = Attributes.builder();
            if (hasKeys && keys.size() == 1) {
                builder.put(KEY, keys.get(0));
            } else if (hasKeys) {
                builder.put(KEYS, keys);
            }
            return builder;
        }

        private void record(DoubleHistogram into, Duration span, String outcome) {
            into.record(span.toNanos() / 1e9, ofMetrics().put(OUTCOME, outcome).build(), parent);
        }

        private void endWait(String command, Duration waited, String outcome) {
            wait.setAttribute(OPERATION, command);
            wait.setAttribute(OUTCOME, outcome);
            wait.end();
            record(waits, waited, outcome);
        }

        @Override
        public void granted(String command, long token, Duration waited) {
            hold = span("lock.hold", SpanKind.INTERNAL).startSpan();
            hold.setAttribute(TOKEN, token);
            held.add(1, ofMetrics().build(), parent);
            endWait(command, waited, "granted");
        }

        @Override
        public void failed(String command, Duration waited, Exception why) {
            String outcome = why instanceof LockException error ? error.code() : "cancelled";
            if (why instanceof LockException && !(why instanceof LockRefusedException)) {
                wait.setAttribute(ERROR, outcome);
                wait.setStatus(StatusCode.ERROR, why.getMessage());
            }
            endWait(command, waited, outcome);
        }

        @Override
        public void result(String command, Duration waited) {
            endWait(command, waited, "result");
        }

        @Override
        public void ended(End end, Duration span, LockLostException why) {
            String outcome = end.name().toLowerCase(Locale.ROOT);
            hold.setAttribute(OUTCOME, outcome);
            if (end == End.LOST) {
                hold.addEvent("lock.lost");
                hold.setAttribute(ERROR, outcome);
                hold.setStatus(StatusCode.ERROR, why.getMessage());
                losses.add(1, ofMetrics().build(), parent);
            }
            hold.end();
            held.add(-1, ofMetrics().build(), parent);
            record(holds, span, outcome);
        }
    }
}
