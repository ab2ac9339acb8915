package dev.serverlock.suite;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.serverlock.spi.Server;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** One client library. */
interface Library {
    /** The application's own client. */
    interface Client {
        Server server();

        Object raw(String[] words);
    }

    String version();

    List<String> can();

    /** How the driver acquires and releases locks. */
    default Calls calls() {
        return Calls.BLOCKING;
    }

    Client open(JsonObject order) throws Exception;

    static Library named(String name) {
        return switch (name) {
            case "jedis" -> new JedisLibrary();
            case "lettuce" -> new LettuceLibrary(Calls.BLOCKING);
            case "lettuce-async" -> new LettuceLibrary(Calls.FUTURES);
            default -> throw new IllegalArgumentException("no such library: " + name);
        };
    }

    static List<String> abilities(String... more) {
        List<String> all = new ArrayList<>(List.of(
                "tls",
                "cancel",
                "stop",
                "background",
                "session",
                "leader",
                "drop",
                "sentinel",
                "cluster",
                "storm",
                "census",
                "clock",
                "refusals",
                "moves",
                "queue",
                "scopes",
                "few_threads",
                "half_open",
                "once",
                "single_flight",
                "default_owner",
                "recover_free",
                "reentrant",
                "deadlock",
                "memory"));
        all.addAll(List.of(more));
        return all;
    }

    /** The version in the manifest of the jar that a class comes from. */
    static String versionOf(Class<?> type, String artifact) {
        String jar = Path.of(
                        type.getProtectionDomain().getCodeSource().getLocation().getPath())
                .getFileName()
                .toString();
        return jar.replace(artifact + "-", "").replace(".jar", "");
    }

    /** A pair of host and port. */
    record Address(String host, int port) {}

    static List<Address> addresses(JsonArray pairs) {
        List<Address> list = new ArrayList<>();
        pairs.forEach(pair -> list.add(new Address(
                pair.getAsJsonArray().get(0).getAsString(),
                pair.getAsJsonArray().get(1).getAsInt())));
        return list;
    }

    static SSLContext trusting(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = Files.newInputStream(authority)) {
            store.setCertificateEntry(
                    "ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        } catch (IOException unreadable) {
            throw new IllegalArgumentException(unreadable);
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
