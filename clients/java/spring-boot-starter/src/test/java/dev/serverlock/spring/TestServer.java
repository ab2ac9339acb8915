package dev.serverlock.spring;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Stream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;

/** A Redis server on a free port, in its own folder; {@link #close} ends it. */
final class TestServer implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    final int port = freePort();

    private final Path folder;
    private final Process process;
    private final String password;

    private TestServer(String password, List<String> options) throws Exception {
        this.password = password;
        folder = Files.createTempDirectory("serverlock-spring");
        List<String> words = new ArrayList<>(List.of(System.getenv().getOrDefault("REDIS_SERVER", "redis-server")));
        if (options.contains("--sentinel")) { // it writes its settings
            words.add(Files.createFile(folder.resolve("sentinel.conf")).toString());
        }
        words.addAll(List.of("--port", "" + port, "--dir", folder.toString(), "--bind", "127.0.0.1"));
        words.addAll(options);
        process = new ProcessBuilder(words)
                .redirectErrorStream(true)
                .redirectOutput(folder.resolve("log").toFile())
                .start();
        until("the server answers: " + folder, () -> {
            try {
                return "PONG".equals(call("PING"));
            } catch (RuntimeException notYet) {
                if (!process.isAlive()) {
                    throw new AssertionError("the server ended: " + Files.readString(folder.resolve("log")));
                }
                return false;
            }
        });
    }

    /** With the module. */
    static TestServer withModule(String... options) throws Exception {
        return withPassword(null, options);
    }

    /** With the module and a password. */
    static TestServer withPassword(String password, String... options) throws Exception {
        String module = System.getenv("SERVERLOCK_MODULE");
        if (module == null) {
            throw new IllegalStateException("SERVERLOCK_MODULE must be the path of the module");
        }
        List<String> all = new ArrayList<>(List.of("--save", "", "--loadmodule", module));
        if (password != null) {
            all.addAll(List.of("--requirepass", password));
        }
        all.addAll(List.of(options));
        return new TestServer(password, all);
    }

    /** Without the module. */
    static TestServer plain(String... options) throws Exception {
        return new TestServer(null, List.of(options));
    }

    /** Below the ports that the system uses for outgoing connections, so that a cluster's port is free as well. */
    static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 22_000);
            try (ServerSocket probe = new ServerSocket()) {
                probe.bind(new InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (IOException taken) {
                // Try another one.
            }
        }
    }

    /** Runs a command; returns its reply as text. */
    String call(String... words) {
        DefaultJedisClientConfig config =
                DefaultJedisClientConfig.builder().password(password).build();
        try (Jedis jedis = new Jedis(new HostAndPort("127.0.0.1", port), config)) {
            String[] arguments = List.of(words).subList(1, words.length).toArray(new String[0]);
            return text(jedis.sendCommand(() -> words[0].getBytes(java.nio.charset.StandardCharsets.UTF_8), arguments));
        }
    }

    private static String text(Object reply) {
        if (reply instanceof byte[] bytes) {
            return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
        }
        return reply instanceof List<?> list
                ? list.stream().map(TestServer::text).toList().toString()
                : String.valueOf(reply);
    }

    boolean isHeld(String key) {
        return call("LOCK.INFO", key).contains("state, held");
    }

    /** Waits for a condition. */
    static void until(String what, Callable<Boolean> isSo) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + PATIENCE + ": " + what);
            }
            Thread.sleep(5);
        }
    }

    @Override
    public void close() throws IOException {
        process.destroyForcibly().onExit().join();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        }
    }
}
