package dev.serverlock.suite;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import dev.serverlock.LockArgumentException;
import dev.serverlock.LockDeadlockException;
import dev.serverlock.LockDeniedException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.LockNoServerException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.LockTimeoutException;
import dev.serverlock.LockUnavailableException;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Carries out the orders of clients/suite with this package: "Driver jedis", "Driver lettuce" or "Driver
 * lettuce-async". docs/CLIENT_SPEC.md describes the protocol.
 */
public final class Driver {
    static final Gson JSON =
            new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private static final Map<Class<? extends Exception>, String> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put(LockTimeoutException.class, "timeout"); // before its superclass
        KINDS.put(LockRefusedException.class, "refused");
        KINDS.put(LockLostException.class, "lost");
        KINDS.put(LockDeadlockException.class, "deadlock");
        KINDS.put(LockUnavailableException.class, "unavailable");
        KINDS.put(LockDeniedException.class, "denied");
        KINDS.put(LockNoServerException.class, "no_server");
        KINDS.put(LockArgumentException.class, "argument");
        KINDS.put(LockMisuseException.class, "misuse");
        KINDS.put(WorkFailed.class, "work");
        KINDS.put(InterruptedException.class, "cancelled");
        KINDS.put(Cannot.class, "cannot");
    }

    private Driver() {}

    /** The error thrown by a scope's body. */
    static final class WorkFailed extends Exception {
        private static final long serialVersionUID = 1;

        WorkFailed() {
            super("the work failed");
        }
    }

    /** Java cannot do what the order asks for. */
    static final class Cannot extends RuntimeException {
        private static final long serialVersionUID = 1;

        Cannot(String what) {
            super(what);
        }
    }

    static Map<String, Object> fields(Object... pairs) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            fields.put((String) pairs[at], pairs[at + 1]);
        }
        return fields;
    }

    static synchronized void say(Map<String, Object> line) {
        OUT.println(JSON.toJson(line));
        OUT.flush();
    }

    private static void play(Player player, JsonObject order) {
        long n = order.get("n").getAsLong();
        try {
            Map<String, Object> ok = player.play(order);
            player.end(n);
            say(fields("n", n, "ok", ok == null ? Map.of() : ok));
        } catch (Throwable error) {
            player.end(n);
            say(fields("n", n, "error", fields("kind", kind(error), "text", text(error))));
        }
    }

    private static String kind(Throwable error) {
        return KINDS.entrySet().stream()
                .filter(known -> known.getKey().isInstance(error))
                .map(Map.Entry::getValue)
                .findFirst()
                .orElse("unknown");
    }

    private static String text(Throwable error) {
        if (!kind(error).equals("unknown")) {
            return error.getMessage();
        }
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace));
        return trace.toString();
    }

    /**
     * Reads orders until the end of its input, then ends at once.
     *
     * @param args the library
     * @throws IOException if the input cannot be read
     */
    public static void main(String[] args) throws IOException {
        Library library = Library.named(args[0]);
        Player player = new Player(library);
        say(fields(
                "event",
                "ready",
                "language",
                "java",
                "client",
                args[0],
                "version",
                library.version(),
                "can",
                library.can(),
                "storms",
                new String[] {"interrupt"}));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject order = JSON.fromJson(line, JsonObject.class);
            Thread thread = new Thread(() -> play(player, order), "order");
            thread.setDaemon(true);
            player.begin(order.get("n").getAsLong(), thread); // begun here, so that an order to cancel it finds it
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }
}
