package dev.serverlock.opentelemetry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.Held;
import dev.serverlock.Hooks;
import dev.serverlock.LockRefusedException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.Locks;
import dev.serverlock.TestServer;
import dev.serverlock.testing.LockServer;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Spans and metrics have the names, kinds, parents, attributes and errors that all languages agree on. */
class OpenTelemetryTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private final InMemoryMetricReader reader = InMemoryMetricReader.create();
    private final InMemorySpanExporter exporter = InMemorySpanExporter.create();
    private final OpenTelemetrySdk sdk = OpenTelemetrySdk.builder()
            .setTracerProvider(SdkTracerProvider.builder()
                    .addSpanProcessor(SimpleSpanProcessor.create(exporter))
                    .build())
            .setMeterProvider(
                    SdkMeterProvider.builder().registerMetricReader(reader).build())
            .build();
    private final LockServer server = new LockServer();
    private final OpenTelemetryHooks hooks = OpenTelemetryHooks.of(sdk);
    private Locks locks = locks(hooks);

    private Locks locks(Hooks hooks) {
        return Locks.builder(server.client()).hooks(hooks).build();
    }

    @AfterEach
    void close() {
        locks.close();
        sdk.close();
    }

    private SpanData span(int number) {
        return exporter.getFinishedSpanItems().get(number);
    }

    private static String text(Attributes attributes) {
        Set<String> all = new TreeSet<>();
        attributes.forEach((key, value) -> all.add(key + "=" + value));
        return String.join(" ", all);
    }

    @Test
    void theSpansHaveTheCallersSpanAsTheirParent() throws Exception {
        Span request = sdk.getTracer("test").spanBuilder("request").startSpan();
        Held held = Context.current()
                .with(request)
                .wrap(() -> locks.lock("report", LEASE).acquire())
                .call();
        held.release(); // outside of the caller's scope
        assertEquals("lock.wait", span(0).getName());
        assertEquals(SpanKind.CLIENT, span(0).getKind());
        assertEquals(
                "db.operation.name=LOCK.ACQUIRE db.system.name=redis serverlock.key=report serverlock.outcome=granted",
                text(span(0).getAttributes()));
        assertEquals("lock.hold", span(1).getName());
        assertEquals(SpanKind.INTERNAL, span(1).getKind());
        assertEquals(
                "serverlock.key=report serverlock.outcome=released serverlock.token=" + held.token(),
                text(span(1).getAttributes()));
        for (SpanData span : exporter.getFinishedSpanItems()) {
            assertEquals(request.getSpanContext().getSpanId(), span.getParentSpanId());
            assertEquals(StatusCode.UNSET, span.getStatus().getStatusCode());
        }
    }

    @Test
    void aLossIsAnErrorAndAnEvent() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        server.lose(held);
        TestServer.until(
                "the span has ended", () -> exporter.getFinishedSpanItems().size() == 2);
        SpanData span = span(1);
        assertEquals(StatusCode.ERROR, span.getStatus().getStatusCode());
        assertTrue(span.getStatus().getDescription().contains("lost: the test has taken it"));
        assertEquals("lock.lost", span.getEvents().get(0).getName());
        assertEquals(
                "error.type=lost serverlock.key=report serverlock.outcome=lost serverlock.token=" + held.token(),
                text(span.getAttributes()));
    }

    @Test
    void aLossThatOnlyTheReleaseNoticesIsOneToo() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        server.expire("report");
        held.release();
        SpanData span = span(1);
        assertEquals(StatusCode.ERROR, span.getStatus().getStatusCode());
        assertEquals(
                "the lock \"report\": lost: its grant had ended before it was released",
                span.getStatus().getDescription());
        assertEquals("lock.lost", span.getEvents().get(0).getName());
        assertEquals(
                "error.type=lost serverlock.key=report serverlock.outcome=lost serverlock.token=" + held.token(),
                text(span.getAttributes()));
        assertTrue(recorded().contains("serverlock.losses {loss} 1"), recorded()::toString);
    }

    @Test
    void aHoldThatTheApplicationHasForgottenExpires() throws Exception {
        locks.lock("report", LEASE).acquire();
        TestServer.until("it is collected", () -> {
            System.gc();
            return exporter.getFinishedSpanItems().size() == 2;
        });
        assertEquals(StatusCode.UNSET, span(1).getStatus().getStatusCode());
        assertTrue(text(span(1).getAttributes()).contains("serverlock.outcome=expired"));
    }

    @Test
    void anotherHoldersResultIsAnOutcomeAndNoError() throws Exception {
        try (Locks others = server.locks()) {
            CountDownLatch computing = new CountDownLatch(1);
            FutureTask<byte[]> first =
                    new FutureTask<>(() -> others.singleFlight("report", LEASE).call(held -> {
                        computing.countDown();
                        TestServer.until("the other one waits", () -> server.waiting("report") == 1);
                        return new byte[] {1};
                    }));
            new Thread(first).start();
            assertTrue(computing.await(1, TimeUnit.MINUTES));
            locks.singleFlight("report", LEASE).call(held -> new byte[] {2});
            first.get();
        }
        assertEquals(1, exporter.getFinishedSpanItems().size());
        assertEquals(StatusCode.UNSET, span(0).getStatus().getStatusCode());
        assertEquals(
                "db.operation.name=LOCK.ACQUIRE db.system.name=redis serverlock.key=report serverlock.outcome=result",
                text(span(0).getAttributes()));
        assertEquals(Set.of("serverlock.wait.duration s serverlock.outcome=result 1 0.0"), recorded());
    }

    @Test
    void itIsNoErrorIfSomebodyElseHasTheLock() throws Exception {
        try (Locks others = server.locks()) {
            Held held = others.lock("report", LEASE).acquire();
            assertThrows(LockRefusedException.class, locks.lock("report", LEASE)::acquire);
            Thread clock = new Thread(() -> {
                try {
                    TestServer.until("it waits", () -> server.waiting("report") == 1);
                } catch (InterruptedException end) {
                    throw new AssertionError(end);
                }
                server.clock().advance(Duration.ofSeconds(5));
            });
            clock.start();
            assertThrows(
                    LockTimeoutException.class, locks.lock("report", LEASE).waiting(Duration.ofSeconds(2))::acquire);
            clock.join();
            held.release();
        }
        assertEquals(StatusCode.UNSET, span(0).getStatus().getStatusCode());
        assertTrue(text(span(0).getAttributes()).endsWith("serverlock.outcome=refused"));
        assertEquals(StatusCode.UNSET, span(1).getStatus().getStatusCode());
        assertTrue(text(span(1).getAttributes()).endsWith("serverlock.outcome=timeout"));
    }

    @Test
    void anyOtherFailureIsAnError() {
        server.refuse("report");
        assertThrows(LockUnavailableException.class, locks.lock("report", LEASE)::acquire);
        assertEquals(StatusCode.ERROR, span(0).getStatus().getStatusCode());
        assertTrue(text(span(0).getAttributes()).contains("error.type=unavailable"));
    }

    @Test
    void severalKeysAreAnArray() throws Exception {
        locks.allOf(List.of("a", "b"), LEASE).acquire().release();
        assertEquals(List.of("a", "b"), span(0).getAttributes().get(AttributeKey.stringArrayKey("serverlock.keys")));
        assertTrue(text(span(0).getAttributes()).contains("db.operation.name=LOCK.MACQUIRE"));
    }

    private Set<String> recorded() {
        Set<String> found = new TreeSet<>();
        for (MetricData metric : reader.collectAllMetrics()) {
            String name = metric.getName() + " " + metric.getUnit() + " ";
            metric.getHistogramData()
                    .getPoints()
                    .forEach(point -> found.add(
                            name + text(point.getAttributes()) + " " + point.getCount() + " " + point.getSum()));
            metric.getLongSumData()
                    .getPoints()
                    .forEach(point -> found.add((name + text(point.getAttributes())).trim() + " " + point.getValue()));
        }
        return found;
    }

    private void use() throws Exception {
        Held held = locks.lock("report", LEASE).acquire();
        assertThrows(LockRefusedException.class, locks.lock("report", LEASE)::acquire);
        server.clock().advance(Duration.ofSeconds(7));
        held.release();
        locks.lock("held", LEASE).acquire();
        server.lose(locks.lock("lost", LEASE).acquire());
        TestServer.until("the loss is counted", () -> recorded().toString().contains("losses"));
    }

    @Test
    void theMetricsCountWaitsHoldsLossesAndHeldLocks() throws Exception {
        use();
        Set<String> expected = Set.of(
                "serverlock.wait.duration s serverlock.outcome=granted 3 0.0",
                "serverlock.wait.duration s serverlock.outcome=refused 1 0.0",
                "serverlock.hold.duration s serverlock.outcome=released 1 7.0",
                "serverlock.hold.duration s serverlock.outcome=lost 1 0.0",
                "serverlock.losses {loss} 1",
                "serverlock.held {lock} 1");
        TestServer.until("all is counted", () -> recorded().equals(new TreeSet<>(expected)));
    }

    @Test
    void theHistogramsHaveTheBoundariesOfAllLanguages() throws Exception {
        locks.lock("report", LEASE).acquire().release();
        List<Double> seconds = List.of(
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
                7200.0);
        Set<String> histograms = new TreeSet<>();
        for (MetricData metric : reader.collectAllMetrics()) {
            metric.getHistogramData().getPoints().forEach(point -> {
                histograms.add(metric.getName());
                assertEquals(seconds, point.getBoundaries());
            });
        }
        assertEquals(Set.of("serverlock.hold.duration", "serverlock.wait.duration"), histograms);
    }

    @Test
    void keysAreAttributesOfMetricsOnlyOnRequest() throws Exception {
        locks.close();
        locks = locks(hooks.withKeyAttribute());
        use();
        assertTrue(recorded().contains("serverlock.losses {loss} serverlock.key=lost 1"), recorded()::toString);
        assertTrue(recorded().contains("serverlock.held {lock} serverlock.key=held 1"), recorded()::toString);
    }

    @Test
    void theScopeIsThePackageWithItsVersion() throws Exception {
        locks.lock("report", LEASE).acquire().release();
        assertEquals("dev.serverlock", span(0).getInstrumentationScopeInfo().getName());
        String version = span(0).getInstrumentationScopeInfo().getVersion();
        assertTrue(Files.readString(Path.of("pom.xml"))
                .contains("<artifactId>serverlock</artifactId>\n  <version>" + version + "</version>"));
        reader.collectAllMetrics()
                .forEach(metric -> assertEquals(
                        version, metric.getInstrumentationScopeInfo().getVersion()));
    }
}
