package dev.serverlock.internal.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.runtime.SystemClock;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Connection;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.WatchedConnection;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** Ten thousand attempts share a subscription, and one thread reads its messages: none of them waits for another. */
class SubscriptionTest {
    private static final byte[] KEY = Words.bytes("k");

    /** A server that accepts the subscription, and answers each PING. */
    private static final class Channel implements Node, Connection {
        final CompletableFuture<Consumer<String>> messages = new CompletableFuture<>();

        @Override
        public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
            messages.complete(onMessage);
            return this;
        }

        @Override
        public Object call(byte[][] words, Duration timeout) {
            return "PONG";
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void onEnd(Runnable ended) {}

        @Override
        public void close() {}

        @Override
        public void exchange(List<Call> calls, Duration timeout) {
            throw new AssertionError();
        }

        @Override
        public boolean isShared() {
            return true;
        }

        @Override
        public Connection dial(Duration timeout) {
            throw new AssertionError();
        }

        @Override
        public WatchedConnection watch(Duration timeout) {
            throw new AssertionError();
        }
    }

    @Test
    void neitherAttemptsNorMessagesTakeALock() throws Exception {
        Channel channel = new Channel();
        Context context = new Context(SystemClock.SYSTEM, 5 * Clock.SECOND, System.getLogger("silent"), Runnable::run);
        Subscription subscription = new Subscription(context, new Router(key -> channel));
        Updates first = subscription.register("1", KEY);
        Consumer<String> messages = channel.messages.get(60, TimeUnit.SECONDS);
        subscription.awaitReady(first, 60 * Clock.SECOND);
        assertTrue(subscription.isUp());
        first.poll();
        CompletableFuture<String> heard;
        synchronized (subscription) { // as if many others were in it
            heard = CompletableFuture.supplyAsync(() -> {
                Updates second = subscription.register("2", KEY);
                messages.accept("granted 2 k");
                subscription.sendAgain();
                subscription.unregister("1");
                boolean goesOn = subscription.isUp() && !subscription.isRefused() && subscription.waiting() == 1;
                return goesOn ? second.poll() : "stopped";
            });
            assertEquals("granted", heard.get(60, TimeUnit.SECONDS));
        }
        context.close();
        subscription.close();
    }
}
