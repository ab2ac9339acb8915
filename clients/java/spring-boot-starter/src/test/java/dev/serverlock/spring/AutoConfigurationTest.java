package dev.serverlock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.serverlock.Held;
import dev.serverlock.LockNoServerException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.Locks;
import dev.serverlock.spi.Server;
import dev.serverlock.testing.LockServer;
import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.ApplicationContext;
import org.springframework.integration.support.locks.LockRegistry;
import redis.clients.jedis.Connection;

/** The locks use the server of spring.data.redis, in each of its forms, and give way to the application's own beans. */
class AutoConfigurationTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private static ApplicationContextRunner with(ApplicationContextRunner runner, String client) {
        return runner.withPropertyValues("spring.data.redis.client-type=" + client, "serverlock.missing-module=refuse");
    }

    private static void takesALock(ApplicationContext context, TestServer server, String client) {
        Locks locks = context.getBean(Locks.class);
        assertThat(context.getBean(Server.class).isAsync()).isEqualTo(client.equals("lettuce"));
        try (Held held = locks.lock("report", LEASE).acquire()) {
            assertThat(server.isHeld("report")).isTrue();
            assertThat(held.verify()).isPositive();
            assertThatThrownBy(() -> locks.lock("report", LEASE)
                            .waiting(Duration.ofMillis(10))
                            .acquire())
                    .hasMessageContaining("somebody else still had it");
        } catch (InterruptedException interrupt) {
            throw new AssertionError(interrupt);
        }
        assertThat(server.isHeld("report")).isFalse();
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void locksAreOnTheServerOfTheProperties(String client) throws Exception {
        try (TestServer server = TestServer.withPassword("secret")) {
            with(Contexts.on(server.port), client)
                    .withPropertyValues(
                            "spring.data.redis.password=secret",
                            "spring.data.redis.database=3",
                            "spring.data.redis.client-name=shop")
                    .run(context -> {
                        Locks locks = context.getBean(Locks.class);
                        locks.lock("report", LEASE).acquire();
                        assertThat(server.call("INFO", "keyspace")).contains("db3:keys=");
                        assertThat(server.call("CLIENT", "LIST")).contains("name=shop");
                    });
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void locksWaitOnOneServer(String client) throws Exception {
        try (TestServer server = TestServer.withModule()) {
            with(Contexts.on(server.port), client).run(context -> takesALock(context, server, client));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void locksAreOnACluster(String client) throws Exception {
        try (TestServer server = TestServer.withModule("--cluster-enabled", "yes")) {
            server.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
            TestServer.until(
                    "the cluster is up", () -> server.call("CLUSTER", "INFO").contains("cluster_state:ok"));
            with(Contexts.plain(), client)
                    .withPropertyValues("spring.data.redis.cluster.nodes=127.0.0.1:" + server.port)
                    .run(context -> takesALock(context, server, client));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void locksAreOnTheMasterThatSentinelsName(String client) throws Exception {
        try (TestServer server = TestServer.withModule();
                TestServer sentinel = TestServer.plain("--sentinel")) {
            sentinel.call("SENTINEL", "MONITOR", "main", "127.0.0.1", "" + server.port, "1");
            with(Contexts.plain(), client)
                    .withPropertyValues(
                            "spring.data.redis.sentinel.master=main",
                            "spring.data.redis.sentinel.nodes=127.0.0.1:" + sentinel.port)
                    .run(context -> takesALock(context, server, client));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void theApplicationStartsWithoutTheServer(String client) throws Exception {
        int port;
        try (TestServer gone = TestServer.withModule()) {
            port = gone.port;
        }
        List<ApplicationContextRunner> forms = new ArrayList<>(List.of(Contexts.on(port)));
        if (client.equals("lettuce")) { // Spring's own factory for Jedis asks a cluster and Sentinels at once
            forms.add(Contexts.plain().withPropertyValues("spring.data.redis.cluster.nodes=127.0.0.1:" + port));
            forms.add(Contexts.plain()
                    .withPropertyValues(
                            "spring.data.redis.sentinel.master=main",
                            "spring.data.redis.sentinel.nodes=127.0.0.1:" + port));
        }
        for (ApplicationContextRunner form : forms) {
            with(form, client).withPropertyValues("serverlock.timeout=500ms").run(context -> {
                Locks locks = context.getBean(Locks.class);
                assertThatThrownBy(() -> locks.lock("report", LEASE).acquire())
                        .isInstanceOf(LockNoServerException.class);
            });
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lettuce", "jedis"})
    void beansReleaseTheirLocksWhenTheApplicationStops(String client) throws Exception {
        try (TestServer server = TestServer.withModule()) {
            with(Contexts.on(server.port), client)
                    .withBean(Job.class)
                    .run(context -> assertThat(server.isHeld("job")).isTrue());
            assertThat(server.isHeld("job")).isFalse();
            TestServer.until(
                    "only this connection is left",
                    () -> server.call("INFO", "clients").contains("connected_clients:1\r"));
        }
    }

    /** Holds a lock while the application runs. */
    static final class Job implements AutoCloseable {
        private final Held held;

        Job(Locks locks) throws InterruptedException {
            held = locks.lock("job", LEASE).acquire();
        }

        @Override
        public void close() {
            held.close();
        }
    }

    @Test
    void withoutTheModuleItWorksUnlessThatIsRequired() throws Exception {
        try (TestServer server = TestServer.plain("--save", "")) {
            ApplicationContextRunner runner = Contexts.on(server.port);
            runner.withPropertyValues("serverlock.missing-module=allow").run(context -> {
                try (Held held =
                        context.getBean(Locks.class).lock("report", LEASE).acquire()) {
                    held.check();
                }
            });
            runner.withPropertyValues("serverlock.missing-module=refuse")
                    .run(context -> assertThatThrownBy(() -> context.getBean(Locks.class)
                                    .lock("report", LEASE)
                                    .acquire())
                            .isInstanceOf(LockUnavailableException.class));
        }
    }

    @Test
    void itCanBeTurnedOff() {
        Contexts.on(1)
                .withPropertyValues("serverlock.enabled=false")
                .run(context -> assertThat(context)
                        .doesNotHaveBean(Locks.class)
                        .doesNotHaveBean(LockRegistry.class)
                        .doesNotHaveBean(LockProvider.class)
                        .doesNotHaveBean(MicrometerHooks.class)
                        .doesNotHaveBean(ServerLockHealthIndicator.class));
        Contexts.on(1)
                .withPropertyValues(
                        "serverlock.lock-registry.enabled=false",
                        "serverlock.shedlock.enabled=false",
                        "management.health.serverlock.enabled=false",
                        "management.metrics.enable.serverlock=false")
                .run(context -> assertThat(context)
                        .hasSingleBean(Locks.class)
                        .doesNotHaveBean(LockRegistry.class)
                        .doesNotHaveBean(LockProvider.class)
                        .doesNotHaveBean(MicrometerHooks.class)
                        .doesNotHaveBean(ServerLockHealthIndicator.class));
    }

    @Test
    void theApplicationsOwnLocksReplaceThese() {
        Contexts.on(1)
                .withBean(Locks.class, () -> new LockServer().locks())
                .run(context -> assertThat(context)
                        .hasSingleBean(Locks.class)
                        .hasSingleBean(LockRegistry.class)
                        .doesNotHaveBean(Server.class)
                        .doesNotHaveBean(ServerLockHealthIndicator.class));
        Contexts.on(1).withBean(Server.class, () -> new LockServer().client()).run(context -> {
            assertThat(context).hasSingleBean(Server.class);
            context.getBean(Locks.class).lock("report", LEASE).acquire().release();
        });
    }

    @Test
    void aCustomizerChangesTheLocks() {
        LockServer server = new LockServer();
        server.refuse("report");
        Contexts.on(1)
                .withBean(Server.class, server::client)
                .withBean(LocksBuilderCustomizer.class, () -> builder -> {
                    throw new IllegalStateException("customized");
                })
                .run(context -> assertThat(context).getFailure().rootCause().hasMessage("customized"));
    }

    @ParameterizedTest
    @ValueSource(classes = {RedisClient.class, Connection.class})
    void nothingThatIsMissingIsNeeded(Class<?> otherClient) {
        FilteredClassLoader without = new FilteredClassLoader(
                otherClient, LockRegistry.class, LockProvider.class, MeterRegistry.class, HealthIndicator.class);
        Contexts.withoutMetrics()
                .withClassLoader(without)
                .run(context -> assertThat(context).hasSingleBean(Locks.class));
    }
}
