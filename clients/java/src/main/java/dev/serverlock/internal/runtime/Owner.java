package dev.serverlock.internal.runtime;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;

/** The owner of a lock whose caller names none: host and process ID, so that operators see which process holds what. */
public final class Owner {
    public static final int LONGEST = 128;

    private static final Path HOST = Path.of("/proc/sys/kernel/hostname");

    private Owner() {}

    /** Computed when it is first needed. */
    private static final class Process {
        static final String OWNER = of(host(), ProcessHandle.current().pid());
    }

    /** This process. */
    public static String hostAndPid() {
        return Process.OWNER;
    }

    public static boolean isVisible(int letter) {
        return letter >= '!' && letter <= '~';
    }

    static String of(String host, long pid) {
        String end = ":" + pid;
        String visible = host.codePoints()
                .limit(LONGEST - end.length())
                .mapToObj(letter -> isVisible(letter) ? Character.toString(letter) : "?")
                .collect(Collectors.joining());
        return visible + end;
    }

    /** InetAddress may ask a DNS server, so it is the last resort. */
    private static String host() {
        try {
            return new String(Files.readAllBytes(HOST), StandardCharsets.UTF_8).strip();
        } catch (IOException notLinux) {
            String named = System.getenv("HOSTNAME");
            return named == null || named.isEmpty() ? localHost() : named;
        }
    }

    private static String localHost() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException unnamed) {
            return "localhost";
        }
    }
}
