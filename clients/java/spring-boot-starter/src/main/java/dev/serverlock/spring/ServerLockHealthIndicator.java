package dev.serverlock.spring;

import dev.serverlock.spi.Call;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.Server;
import dev.serverlock.spring.ServerLockProperties.MissingModule;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;

/**
 * Asks the server for a lock that nobody uses. The health is DOWN if there is no reply, and if the server does not have
 * the module, unless that is allowed. In a cluster, it asks the server that has the key {@value #KEY}.
 */
public class ServerLockHealthIndicator extends AbstractHealthIndicator {
    /** The key that it asks for. */
    public static final String KEY = "serverlock:health";

    private static final String WITHOUT_MODULE = "the server does not have the lock module; its locks use a script";

    private final Server server;
    private final Duration timeout;
    private final MissingModule missing;

    /**
     * Creates the indicator.
     *
     * @param server the server
     * @param timeout how long its reply may take
     * @param missing what it means if the server does not have the module
     */
    public ServerLockHealthIndicator(Server server, Duration timeout, MissingModule missing) {
        super("the lock server cannot be asked");
        this.server = server;
        this.timeout = timeout;
        this.missing = missing;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    protected void doHealthCheck(Health.Builder health) {
        byte[] key = bytes(KEY);
        Call info = new Call(new byte[][] {bytes("LOCK.INFO"), key});
        long began = System.nanoTime();
        server.node(key).exchange(List.of(info), timeout);
        if (info.error == null) {
            health.up().withDetail("module", "loaded").withDetail("millis", (System.nanoTime() - began) / 1_000_000);
        } else if (info.error instanceof ReplyException reply && isUnknown(reply)) {
            if (missing == MissingModule.ALLOW) {
                health.up();
            } else {
                health.down().withDetail("error", WITHOUT_MODULE);
            }
            health.withDetail("module", "missing");
        } else if (info.error instanceof ReplyException reply
                && reply.getMessage().startsWith("NOPERM")) {
            health.unknown().withDetail("error", reply.getMessage()); // locks may still work
        } else {
            health.down(info.error);
        }
    }

    private static boolean isUnknown(ReplyException reply) {
        return reply.getMessage().toLowerCase(java.util.Locale.ROOT).contains("unknown command");
    }
}
