package dev.serverlock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.serverlock.Held;
import dev.serverlock.LockException;
import dev.serverlock.Locks;
import dev.serverlock.ServerLock;
import dev.serverlock.spi.Server;
import dev.serverlock.testing.LockServer;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The metrics count waits and holds by outcome, losses, and the locks that are held now. */
class MetricsTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private final LockServer server = new LockServer();

    private static Timer timer(MeterRegistry meters, String name, String outcome) {
        return meters.get(name).tag("outcome", outcome).timer();
    }

    @Test
    void theyCountWaitsHoldsLossesAndHeldLocks() {
        Contexts.on(1).withBean(Server.class, server::client).run(context -> {
            MeterRegistry meters = context.getBean(MeterRegistry.class);
            Locks locks = context.getBean(Locks.class);
            ServerLock report = locks.lock("report", LEASE);
            Held held = report.acquire();
            Held lost = locks.lock("lost", LEASE).acquire();
            assertThat(meters.get("serverlock.held").gauge().value()).isEqualTo(2);
            assertThatThrownBy(report::acquire).isInstanceOf(LockException.class);
            server.clock().advance(Duration.ofSeconds(7));
            held.release();
            server.lose(lost);
            TestServer.until(
                    "the loss is counted",
                    () -> meters.get("serverlock.losses").counter().count() == 1);
            assertThat(meters.get("serverlock.held").gauge().value()).isZero();
            assertThat(timer(meters, "serverlock.wait", "granted").count()).isEqualTo(2);
            assertThat(timer(meters, "serverlock.wait", "refused").count()).isEqualTo(1);
            assertThat(timer(meters, "serverlock.hold", "lost").count()).isEqualTo(1);
            assertThat(timer(meters, "serverlock.hold", "released").totalTime(TimeUnit.SECONDS))
                    .isEqualTo(7);
            assertThat(meters.getMeters())
                    .allSatisfy(meter -> assertThat(meter.getId().getTag("key")).isNull());
        });
    }

    @Test
    void theyCountAnAttemptThatEndsWithAnotherHoldersResult() {
        Contexts.on(1).withBean(Server.class, server::client).run(context -> {
            CountDownLatch computing = new CountDownLatch(1);
            try (Locks others = server.locks()) {
                FutureTask<byte[]> first = new FutureTask<>(() -> others.singleFlight("report", LEASE)
                        .call(held -> {
                            computing.countDown();
                            TestServer.until("the other one waits", () -> server.waiting("report") == 1);
                            return new byte[] {1};
                        }));
                new Thread(first).start();
                assertThat(computing.await(1, TimeUnit.MINUTES)).isTrue();
                Locks locks = context.getBean(Locks.class);
                assertThat(locks.singleFlight("report", LEASE).call(held -> new byte[] {2}))
                        .containsExactly(1);
                first.get();
            }
            MeterRegistry meters = context.getBean(MeterRegistry.class);
            assertThat(timer(meters, "serverlock.wait", "result").count()).isEqualTo(1);
            assertThat(meters.get("serverlock.held").gauge().value()).isZero();
        });
    }

    @Test
    void aLockThatNobodyReleasesIsNotCountedForever() {
        Contexts.on(1).withBean(Server.class, server::client).run(context -> {
            MeterRegistry meters = context.getBean(MeterRegistry.class);
            context.getBean(Locks.class).lock("dropped", LEASE).acquire();
            TestServer.until("it is collected", () -> {
                System.gc();
                return meters.get("serverlock.held").gauge().value() == 0;
            });
            assertThat(timer(meters, "serverlock.hold", "expired").count()).isEqualTo(1);
        });
    }
}
