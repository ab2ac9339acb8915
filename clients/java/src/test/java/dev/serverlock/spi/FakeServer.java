package dev.serverlock.spi;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;

/** A server with scripted replies, as RESP2 bytes. It counts the commands that it gets. */
public final class FakeServer implements AutoCloseable {
    /** Closes the connection instead of replying. */
    public static final String CLOSE = "close";
    /** Sends no reply. */
    public static final String SILENCE = "";

    private final ServerSocket socket;
    private final Map<String, Integer> counts = new ConcurrentHashMap<>();
    private final AtomicInteger accepted = new AtomicInteger();
    private final AtomicInteger open = new AtomicInteger();
    private final UnaryOperator<String> answer;

    /**
     * Listens on a free port.
     *
     * @param answer the reply to a command that begins with LOCK; others get a plain server's reply
     * @throws IOException if it cannot
     */
    public FakeServer(UnaryOperator<String> answer) throws IOException {
        this(answer, 0);
    }

    /**
     * Listens on a given port, like a restarted server.
     *
     * @param answer the reply to a command that begins with LOCK
     * @param port the port
     * @throws IOException if it cannot
     */
    public FakeServer(UnaryOperator<String> answer, int port) throws IOException {
        this.answer = answer;
        socket = new ServerSocket(port, 50, InetAddress.getLoopbackAddress());
        daemon(() -> {
            while (true) {
                Socket connection = socket.accept();
                accepted.incrementAndGet();
                open.incrementAndGet();
                daemon(() -> {
                    try {
                        serve(connection);
                    } finally {
                        open.decrementAndGet();
                    }
                });
            }
        });
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void daemon(Work work) {
        Thread thread = new Thread(
                () -> {
                    try {
                        work.run();
                    } catch (IOException ended) {
                        // The client or the test has closed it.
                    }
                },
                "fake-server");
        thread.setDaemon(true);
        thread.start();
    }

    private void serve(Socket connection) throws IOException {
        try (connection;
                InputStream in = new BufferedInputStream(connection.getInputStream())) {
            while (true) {
                int count = Integer.parseInt(line(in).substring(1));
                String command = "";
                for (int at = 0; at < count; at++) {
                    byte[] word = in.readNBytes(Integer.parseInt(line(in).substring(1)));
                    in.readNBytes(2);
                    command = at == 0 ? new String(word, StandardCharsets.UTF_8).toUpperCase(Locale.ROOT) : command;
                }
                counts.merge(command, 1, Integer::sum);
                String reply = reply(command);
                if (reply.equals(CLOSE)) {
                    return;
                }
                connection.getOutputStream().write(reply.getBytes(StandardCharsets.UTF_8));
            }
        }
    }

    private String reply(String command) {
        if (command.startsWith("LOCK.")) {
            return answer.apply(command);
        }
        return command.equals("HELLO")
                ? "-ERR unknown command 'HELLO'\r\n"
                : command.equals("PING") ? "+PONG\r\n" : "+OK\r\n";
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int letter = in.read(); letter != '\n'; letter = in.read()) {
            if (letter < 0) {
                throw new IOException("the end");
            }
            line.append((char) letter);
        }
        return line.toString().strip();
    }

    /** {@return the port, on 127.0.0.1} */
    public int port() {
        return socket.getLocalPort();
    }

    /**
     * Counts a command.
     *
     * @param command in upper case
     * @return how often it was sent
     */
    public int count(String command) {
        return counts.getOrDefault(command, 0);
    }

    /** {@return how many connections there have been} */
    public int accepted() {
        return accepted.get();
    }

    /** {@return how many connections are open} */
    public int open() {
        return open.get();
    }

    /**
     * Creates a call without arguments.
     *
     * @param command the command
     * @return the call
     */
    public static Call call(String command) {
        return new Call(new byte[][] {command.getBytes(StandardCharsets.UTF_8)});
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
