package app;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

/**
 * Two instances of an application share its tasks: one at a time works. When the one that works is killed, the other
 * goes on.
 */
class TwoInstancesTest {
    /** Far more than the longest lease, 10 s, and than an instance needs to start on a busy machine. */
    private static final Duration PATIENCE = Duration.ofMinutes(6);

    @TempDir
    private Path folder;

    private final List<Process> processes = new ArrayList<>();
    /** Their ids. */
    private final List<String> killed = new ArrayList<>();

    private int port;
    private LettuceConnectionFactory factory;
    private StringRedisTemplate redis;

    @BeforeEach
    void startServer() throws Exception {
        String module = System.getenv("SERVERLOCK_MODULE");
        assertThat(module).as("SERVERLOCK_MODULE, the path of the module").isNotNull();
        Process server;
        do { // until the port is free
            port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
            server = process(List.of(
                    System.getenv().getOrDefault("REDIS_SERVER", "redis-server"),
                    "--port",
                    "" + port,
                    "--dir",
                    folder.toString(),
                    "--save",
                    "",
                    "--bind",
                    "127.0.0.1",
                    "--loadmodule",
                    module));
        } while (!answers(server));
    }

    private boolean answers(Process server) throws Exception {
        factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", port));
        factory.afterPropertiesSet();
        redis = new StringRedisTemplate(factory);
        until("the server answers", () -> {
            try {
                return !server.isAlive() || redis.hasKey("any") != null;
            } catch (RuntimeException notYet) {
                return false;
            }
        });
        return server.isAlive();
    }

    @AfterEach
    void end() {
        factory.destroy();
        processes.forEach(process -> process.destroyForcibly().onExit().join());
    }

    private Process process(List<String> words) throws Exception {
        Path log = folder.resolve("log" + processes.size());
        Process process = new ProcessBuilder(words)
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        processes.add(process);
        return process;
    }

    private void until(String what, Callable<Boolean> isSo) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.call()) {
            if (System.nanoTime() > end) {
                StringBuilder logs = new StringBuilder();
                for (int number = 0; number < processes.size(); number++) {
                    logs.append(Files.readString(folder.resolve("log" + number)));
                }
                throw new AssertionError("not within " + PATIENCE + ": " + what + "; " + logs);
            }
            Thread.sleep(10);
        }
    }

    /** Starts an instance. */
    private void start(String... options) throws Exception {
        List<String> words = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1",
                "-cp",
                System.getProperty("java.class.path"),
                "app.Application",
                "--spring.data.redis.port=" + port));
        words.addAll(List.of(options));
        process(words);
    }

    /** Waits until this many instances have started. */
    private void ready(int count) throws Exception {
        until("instances are ready: " + count, () -> events("ready").size() == count);
        assertThat(events("ready")).allMatch(event -> event.startsWith("UP "));
    }

    private List<String> events(String list) {
        return redis.opsForList().range(list, 0, -1);
    }

    private static String who(String event) {
        return event.substring(event.indexOf(' ') + 1);
    }

    /** How often somebody began while another one was working. A process that was killed does not work. */
    private int overlaps(String list) {
        int found = 0;
        String working = null;
        for (String event : events(list)) {
            if (event.startsWith("begin")) {
                found += working != null && !killed.contains(working) ? 1 : 0;
                working = who(event);
            } else if (event.startsWith("end") && who(event).equals(working)) {
                working = null;
            }
        }
        return found;
    }

    /** Kills the process of an event. */
    private void kill(String event) {
        String pid = who(event);
        Process victim = processes.stream()
                .filter(process -> pid.equals("" + process.pid()))
                .findAny()
                .orElseThrow();
        victim.destroyForcibly().onExit().join(); // SIGKILL
        killed.add(pid);
    }

    /** Kills an instance in the middle of a task, and waits until another one does the task. */
    private void passesOn(String list) throws Exception {
        until(list + " runs", () -> events(list).size() > 20);
        redis.opsForValue().set("stay:" + list, "1");
        until("somebody is in the middle of " + list, () -> last(list).startsWith("stay"));
        int before = events(list).size();
        kill(last(list));
        redis.delete("stay:" + list);
        until("another one goes on with " + list, () -> last(list).startsWith("end"));
        List<String> after = events(list).subList(before, events(list).size());
        assertThat(after.get(0)).startsWith("begin");
        assertThat(after).noneMatch(event -> killed.contains(who(event)));
        assertThat(overlaps(list)).isZero();
    }

    private String last(String list) {
        List<String> all = events(list);
        return all.get(all.size() - 1);
    }

    @Test
    void withoutLocksTwoInstancesRunEachTaskAtOnce() throws Exception {
        start("--app.unlocked=true");
        start("--app.unlocked=true");
        ready(2);
        for (String list : List.of("shed", "renewed", "leader")) {
            until("both run it at once: " + list, () -> overlaps(list) > 0);
        }
    }

    @Test
    void anotherInstanceGoesOnWithEachTaskWhenOneIsKilledInTheMiddle() throws Exception {
        start();
        start();
        ready(2);
        passesOn("shed");
        start();
        ready(3);
        passesOn("renewed");
        start();
        ready(4);
        until("a living one leads", () -> leads(last("leader")));
        kill(last("leader"));
        until("another one leads", () -> leads(last("leader")));
        assertThat(overlaps("leader")).isZero();
    }

    private boolean leads(String event) {
        return event.startsWith("begin") && !killed.contains(who(event));
    }
}
