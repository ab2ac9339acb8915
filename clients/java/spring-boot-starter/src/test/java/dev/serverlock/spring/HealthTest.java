package dev.serverlock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

/** The health is DOWN without the server or the module, and says why. */
class HealthTest {
    private static Health health(ApplicationContextRunner runner) {
        Health[] found = new Health[1];
        runner.run(context ->
                found[0] = context.getBean(ServerLockHealthIndicator.class).health());
        return found[0];
    }

    @Test
    void itIsUpWithTheModule() throws Exception {
        try (TestServer server = TestServer.withModule()) {
            Health health = health(Contexts.on(server.port));
            assertThat(health.getStatus()).isEqualTo(Status.UP);
            assertThat(health.getDetails()).containsEntry("module", "loaded").containsKey("millis");
        }
    }

    @Test
    void itIsDownWithoutTheModuleUnlessThatIsOptional() throws Exception {
        try (TestServer server = TestServer.plain("--save", "")) {
            Health down = health(Contexts.on(server.port));
            assertThat(down.getStatus()).isEqualTo(Status.DOWN);
            assertThat(down.getDetails()).containsEntry("module", "missing").containsKey("error");
            Health up = health(Contexts.on(server.port).withPropertyValues("serverlock.missing-module=allow"));
            assertThat(up.getStatus()).isEqualTo(Status.UP);
            assertThat(up.getDetails()).containsEntry("module", "missing");
        }
    }

    @Test
    void itIsDownWithoutTheServer() {
        Health health = health(Contexts.on(TestServer.freePort()).withPropertyValues("serverlock.timeout=500ms"));
        assertThat(health.getStatus()).isEqualTo(Status.DOWN);
        assertThat(health.getDetails().get("error").toString()).contains("connect");
    }

    @Test
    void itIsUnknownIfTheUserMayNotAsk() throws Exception {
        try (TestServer server = TestServer.withModule()) {
            server.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-lock.info");
            Health health = health(Contexts.on(server.port)
                    .withPropertyValues("spring.data.redis.username=app", "spring.data.redis.password=secret"));
            assertThat(health.getStatus()).isEqualTo(Status.UNKNOWN);
            assertThat(health.getDetails().get("error").toString()).startsWith("NOPERM");
        }
    }
}
