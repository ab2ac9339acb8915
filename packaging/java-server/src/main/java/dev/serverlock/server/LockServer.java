package dev.serverlock.server;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A JUnit extension: a server with the redis-lock module for the tests of a class, with an empty database for each.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final LockServer SERVER = new LockServer();
 * }</pre>
 *
 * <p>It starts the redis-server or valkey-server in the PATH, or the program that {@code REDIS_SERVER} names, on a free
 * port of 127.0.0.1. {@code REDIS_LOCK_MODULE} names the module, or a release archive that contains it. The server
 * keeps no data.
 */
public final class LockServer implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
    private static final String READY = "Ready to accept connections";
    // glibc says "Address already in use", musl "Address in use".
    private static final String IN_USE = " in use";
    // Another program can take a port between the moment that it is free and the server's start.
    private static final int ATTEMPTS = 5;
    private static final int DEADLINE_SECONDS = 60;
    private static final int LOG_LINES = 200;

    private final List<String> options;
    private final Deque<String> log = new ArrayDeque<>();
    private Path folder;
    private Process process;
    private Thread reader;
    private int port;

    /**
     * Starts nothing yet.
     *
     * @param options more options of the server, such as {@code "--maxmemory", "100mb"}
     */
    public LockServer(String... options) {
        this.options = List.of(options);
    }

    /**
     * The server's port on 127.0.0.1.
     *
     * @return the port
     */
    public int port() {
        return port;
    }

    /**
     * The URL for clients, such as {@code redis://127.0.0.1:40123}.
     *
     * @return the URL
     */
    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    /**
     * The newest lines of the server's log.
     *
     * @return the lines
     */
    public String log() {
        synchronized (log) {
            return String.join("\n", log);
        }
    }

    /** Removes all keys and locks. */
    public void flush() {
        try (Socket connection = new Socket(InetAddress.getLoopbackAddress(), port)) {
            connection.getOutputStream().write("*1\r\n$8\r\nFLUSHALL\r\n".getBytes(StandardCharsets.US_ASCII));
            String reply = new String(connection.getInputStream().readNBytes(5), StandardCharsets.US_ASCII);
            if (!reply.equals("+OK\r\n")) throw new IllegalStateException("FLUSHALL replied " + reply);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Starts the server. */
    public void start() throws IOException, InterruptedException {
        String program = Programs.server();
        folder = Files.createTempDirectory("serverlock-");
        Path module = Programs.module(folder);
        for (int attempt = 1; !isStarted(program, module); attempt++) {
            String failed = log();
            end();
            if (attempt == ATTEMPTS || !failed.contains(IN_USE)) {
                stop();
                throw new IllegalStateException("the server did not start:\n" + failed);
            }
        }
    }

    /** Ends the server and removes its files. A second call does nothing. */
    public void stop() throws IOException, InterruptedException {
        end();
        if (folder == null) return;
        try (var files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) Files.deleteIfExists(file);
        }
        folder = null;
    }

    @Override
    public void beforeAll(ExtensionContext context) throws IOException, InterruptedException {
        start();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        flush();
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
        stop();
    }

    private boolean isStarted(String program, Path module) throws IOException, InterruptedException {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        List<String> command = new ArrayList<>(List.of(program));
        command.addAll(List.of("--port", Integer.toString(port), "--dir", folder.toString()));
        command.addAll(List.of("--bind", "127.0.0.1", "--save", "", "--appendonly", "no"));
        command.addAll(List.of("--loadmodule", module.toString()));
        // They come last, so they replace the defaults.
        command.addAll(options);
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        CountDownLatch readyOrEnded = new CountDownLatch(1);
        // The output is read until the end, or the server would block once the pipe is full.
        reader = new Thread(() -> read(readyOrEnded), "serverlock-server log");
        reader.setDaemon(true);
        reader.start();
        return readyOrEnded.await(DEADLINE_SECONDS, TimeUnit.SECONDS) && log().contains(READY);
    }

    private void read(CountDownLatch readyOrEnded) {
        synchronized (log) {
            log.clear();
        }
        try (var lines = process.inputReader()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                synchronized (log) {
                    log.add(line);
                    if (log.size() > LOG_LINES) log.remove();
                }
                if (line.contains(READY)) readyOrEnded.countDown();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } finally {
            readyOrEnded.countDown();
        }
    }

    private void end() throws InterruptedException {
        if (process == null) return;
        // Process.destroy would close the output before the reader has read the end.
        process.toHandle().destroy();
        if (!process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS)) process.toHandle().destroyForcibly();
        process.waitFor();
        reader.join();
        process = null;
    }
}
