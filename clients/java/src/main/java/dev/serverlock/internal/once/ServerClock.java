package dev.serverlock.internal.once;

import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.Errors;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Router;
import dev.serverlock.internal.wire.Words;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * The server's clock, and the margin that the server adds to leases. Each is requested at most once a minute, by one
 * caller at a time, while others wait for its reply. Thread-safe.
 */
public final class ServerClock {
    public static final long USUAL_MARGIN = Clock.SECOND;

    /** How long the replies are valid. */
    static final long VALID_FOR = 60 * Clock.SECOND;

    private static final long PAUSE = 10 * Clock.MILLISECOND;
    private static final ByteBuffer ANY_KEY = ByteBuffer.allocate(0);
    private static final byte[][] TIME = {Words.bytes("TIME")};

    private final Context context;
    private final Router router;
    private final Semaphore asking = new Semaphore(1);
    /** By key in a cluster, because each of its servers has its own clock. */
    private final Map<ByteBuffer, Estimate> known = new ConcurrentHashMap<>();

    private volatile Margin margin;

    private record Margin(long span, long asked) {}

    public ServerClock(Context context, Router router) {
        this.context = context;
        this.router = router;
        margin = new Margin(USUAL_MARGIN, context.now() - VALID_FOR);
    }

    /** Estimates the clock of the server that has the key. Throws ReplyError or ConnectionLost. */
    public Estimate read(Request request) throws InterruptedException {
        ByteBuffer place = router.isCluster() ? ByteBuffer.wrap(request.key()) : ANY_KEY;
        Estimate found = fresh(place);
        if (found != null) {
            return found;
        }
        begin();
        try {
            found = fresh(place); // another caller may have just asked
            if (found == null) {
                found = ask(request.key());
                if (found.isGood()) {
                    keep(place, found);
                }
            }
            return found;
        } finally {
            asking.release();
        }
    }

    private void begin() throws InterruptedException {
        if (!asking.tryAcquire(context.timeout(), TimeUnit.NANOSECONDS)) {
            throw new ConnectionLost("another caller has asked the server, and is waiting for the reply");
        }
    }

    /** Null if there is none. */
    private Estimate fresh(ByteBuffer place) {
        Estimate found = known.get(place);
        return found != null && context.now() < found.asked() + VALID_FOR ? found : null;
    }

    private void keep(ByteBuffer place, Estimate found) {
        known.values().removeIf(old -> found.asked() >= old.asked() + VALID_FOR);
        known.put(place, found);
    }

    /** How many estimates are kept. */
    int kept() {
        return known.size();
    }

    /** Asks for the time, and once more if the reply is lost or slow. */
    private Estimate ask(byte[] key) throws InterruptedException {
        Estimate found;
        try {
            found = call(key);
        } catch (ReplyError | ConnectionLost error) {
            if (!Errors.isTransient(error)) {
                throw error;
            }
            if (error instanceof ConnectionLost) {
                router.refresh(); // the key may be on another server now
            }
            context.pause(PAUSE);
            return call(key);
        }
        if (found.isGood()) {
            return found;
        }
        try { // it may have had to wait for a new connection
            Estimate again = call(key);
            return again.doubt() < found.doubt() ? again : found;
        } catch (ReplyError | ConnectionLost error) {
            return found;
        }
    }

    private Estimate call(byte[] key) {
        long sent = context.now();
        Object reply = router.call(key, TIME, context.timeout());
        return Estimate.read(reply, sent, context.now());
    }

    /** What the server adds to each lease, as far as is known. */
    public long margin() {
        return margin.span;
    }

    /** What the server adds to each lease. ask: returns the reply to LOCK.INFO; throws ReplyError or ConnectionLost. */
    public long readMargin(Supplier<Object> ask) throws InterruptedException {
        if (isMarginFresh()) {
            return margin();
        }
        try {
            begin();
        } catch (ConnectionLost others) {
            return margin();
        }
        try {
            if (!isMarginFresh()) {
                margin = new Margin(asked(ask), context.now());
            }
        } catch (ConnectionLost lost) {
            // The next caller asks again.
        } finally {
            asking.release();
        }
        return margin();
    }

    private boolean isMarginFresh() {
        return context.now() < margin.asked + VALID_FOR;
    }

    private long asked(Supplier<Object> ask) {
        try {
            return marginOf(ask.get());
        } catch (ReplyError notAllowed) {
            return margin.span;
        }
    }

    private static long marginOf(Object reply) {
        if (Words.field(reply, "lease-ms") instanceof Long lease
                && lease > 0
                && Words.field(reply, "free-in-ms") instanceof Long free) {
            // Both are whole milliseconds, one rounded down and the other up.
            return Math.max(0, free - lease - 1) * Clock.MILLISECOND;
        }
        return USUAL_MARGIN;
    }
}
