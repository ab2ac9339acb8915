package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.serverlock.jedis.JedisServer;
import dev.serverlock.opentelemetry.OpenTelemetryHooks;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.metrics.data.PointData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/** The example hooks for OpenTelemetry record a real server's locks. */
class OpenTelemetryTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    @Test
    void itCountsWaitsHoldsAndLosses() throws Exception {
        InMemoryMetricReader reader = InMemoryMetricReader.create();
        try (TestServer server = new TestServer();
                SdkMeterProvider meters =
                        SdkMeterProvider.builder().registerMetricReader(reader).build();
                Locks locks = Locks.builder(JedisServer.of(server.client))
                        .hooks(new OpenTelemetryHooks(meters.get("test")))
                        .build()) {
            ServerLock report = locks.lock("report", LEASE);
            Held held = report.acquire();
            assertThrows(LockRefusedException.class, report::acquire);
            assertThrows(LockTimeoutException.class, report.waiting(Duration.ofMillis(20))::acquire);
            held.release();
            Held lost = locks.lock("lost", LEASE).acquire();
            server.call("DEL", "lost");
            assertThrows(LockLostException.class, lost::verify);
            lost.release();
            // Another thread reports a loss.
            TestServer.until("the loss is counted", () -> recorded(reader).contains("lock.lost 1"));
            Set<String> expected = Set.of(
                    "lock.wait.duration granted 2",
                    "lock.wait.duration LockRefusedException 1",
                    "lock.wait.duration LockTimeoutException 1",
                    "lock.hold.duration in_time 1",
                    "lock.hold.duration too_late 1",
                    "lock.lost 1");
            assertEquals(new TreeSet<>(expected), recorded(reader));
        }
    }

    private static Set<String> recorded(InMemoryMetricReader reader) {
        Set<String> found = new TreeSet<>();
        for (MetricData metric : reader.collectAllMetrics()) {
            metric.getHistogramData()
                    .getPoints()
                    .forEach(point -> found.add(metric.getName() + " " + outcome(point) + " " + point.getCount()));
            metric.getLongSumData().getPoints().forEach(point -> found.add(metric.getName() + " " + point.getValue()));
        }
        return found;
    }

    private static String outcome(PointData point) {
        return point.getAttributes().get(AttributeKey.stringKey("lock.outcome"));
    }
}
