package dev.serverlock;

import dev.serverlock.internal.wire.Words;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.RedisClient;

/** A server with the module, on a free port, in its own folder; {@link #close} ends it. */
public final class TestServer implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** On 127.0.0.1. */
    public final int port;

    /** Connected to the server. */
    public final RedisClient client;

    private final Path folder;
    private final Process process;

    /**
     * Starts it, and waits until it answers.
     *
     * @throws Exception if it does not
     */
    public TestServer() throws Exception {
        port = freePort();
        folder = Files.createTempDirectory("serverlock-java");
        String module = System.getenv("SERVERLOCK_MODULE");
        if (module == null) {
            throw new IllegalStateException("SERVERLOCK_MODULE must be the path of the module");
        }
        String binary = System.getenv().getOrDefault("REDIS_SERVER", "redis-server");
        process = new ProcessBuilder(List.of(
                        binary,
                        "--port",
                        "" + port,
                        "--dir",
                        folder.toString(),
                        "--save",
                        "",
                        "--bind",
                        "127.0.0.1",
                        "--loadmodule",
                        module))
                .redirectErrorStream(true)
                .redirectOutput(folder.resolve("log").toFile())
                .start();
        client = RedisClient.create("127.0.0.1", port);
        until("the server answers", () -> {
            try {
                return "PONG".equals(client.ping());
            } catch (RuntimeException notYet) {
                if (!process.isAlive()) {
                    throw new AssertionError("the server ended: " + log());
                }
                return false;
            }
        });
    }

    /** Below the ports that the system uses for outgoing connections. */
    private static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
            try (ServerSocket probe = new ServerSocket()) {
                probe.bind(new InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (IOException taken) {
                // Try another one.
            }
        }
    }

    private String log() {
        try {
            return Files.readString(folder.resolve("log"));
        } catch (IOException unreadable) {
            return unreadable.toString();
        }
    }

    /**
     * Waits for a condition.
     *
     * @param what names it in the error, which is thrown after a minute
     * @param isSo checked every 5 ms
     * @throws InterruptedException if the thread is interrupted
     */
    public static void until(String what, BooleanSupplier isSo) throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + PATIENCE + ": " + what);
            }
            Thread.sleep(5);
        }
    }

    Object call(String name, Object... args) {
        CommandArguments words = new CommandArguments(() -> Words.bytes(name));
        for (Object arg : args) {
            words.add(arg.toString());
        }
        return client.executeCommand(new CommandObject<>(words, BuilderFactory.RAW_OBJECT));
    }

    /** Returns a field of LOCK.INFO, as text. */
    String info(String key, String field) {
        Object found = null;
        if (dev.serverlock.jedis.Replies.plain(call("LOCK.INFO", key)) instanceof List<?> fields) {
            for (int at = 0; at + 1 < fields.size(); at += 2) {
                if (Words.text(fields.get(at)).equals(field)) {
                    found = fields.get(at + 1);
                }
            }
        }
        return Words.text(found);
    }

    /**
     * Adds up the CPU time of its threads.
     *
     * @return that time, in nanoseconds
     * @throws IOException if it has ended
     */
    public long cpuTime() throws IOException {
        // The process time in /proc/PID/stat counts only hundredths of a second.
        long sum = 0;
        try (Stream<Path> tasks = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
            for (Path task : tasks.toList()) {
                sum += Long.parseLong(
                        Files.readString(task.resolve("schedstat")).split(" ")[0]);
            }
        }
        return sum;
    }

    /** Sends it a signal, such as STOP. */
    void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
    }

    boolean isFree(String key) {
        return info(key, "state").equals("free");
    }

    @Override
    public void close() throws IOException {
        client.close();
        process.destroyForcibly().onExit().join();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        }
    }
}
