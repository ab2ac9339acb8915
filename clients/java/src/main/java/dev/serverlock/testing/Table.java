package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * The keys of a server, and the rules by which they are granted: those of the module, as far as the package uses them.
 * All other methods are called within {@link #change}. Thread-safe.
 */
final class Table {
    /** How long an attempt with NOTIFY may take to claim its grant. */
    private static final long CLAIM = 2 * Clock.SECOND;

    private static final ReplyException REFUSED = new ReplyException("CLOCK the test refuses this key");
    private static final ReplyException REPLACED =
            new ReplyException("UNBLOCKED a newer call with the same id replaced this one");

    private final ManualClock clock;
    private final Map<String, Key> keys = new HashMap<>();
    /** Those in a queue, by ID. */
    private final Map<String, Waiter> attempts = new HashMap<>();
    /** IDs, and when they were cancelled. */
    private final Map<String, Long> cancelled = new HashMap<>();

    /** What IDs were given in place of the lock. */
    private final Map<String, Given> given = new HashMap<>();

    private final Map<String, MemoryConnection> channels = new HashMap<>();
    /** Replies and messages, which are delivered after the change. */
    private List<Runnable> news = new ArrayList<>();

    private long lastToken;
    private long arrivals;

    private record Given(byte[] result, long until) {}

    Table(ManualClock clock) {
        this.clock = clock;
    }

    /** Makes a change while nothing else happens, and then delivers the replies and messages that it caused. */
    <T> T change(Supplier<T> change) {
        List<Runnable> caused = List.of();
        try {
            synchronized (this) {
                try {
                    return change.get();
                } finally {
                    caused = news;
                    news = new ArrayList<>();
                }
            }
        } finally {
            caused.forEach(Runnable::run);
        }
    }

    void change(Runnable change) {
        change(() -> {
            change.run();
            return null;
        });
    }

    long now() {
        return clock.time();
    }

    /** The key, without what has passed. */
    Key key(String name) {
        Key key = keys.computeIfAbsent(name, Key::new);
        long now = now();
        key.holders.removeIf(grant -> now >= Clock.after(grant.until, Key.RETENTION));
        key.queue.removeIf(waiter -> {
            boolean isOver = !waiter.isWaiting && now >= waiter.left + Key.PLACE;
            return isOver && attempts.remove(waiter.ask.id(), waiter);
        });
        return key;
    }

    /** Grants the keys, or lets the attempt wait: with a reply that comes later, or with NOTIFY. */
    CompletableFuture<Object> acquire(Ask ask, MemoryConnection from) {
        throwIfRefused(ask.keys());
        given.values().removeIf(result -> now() >= result.until);
        Given mine = given.get(ask.id());
        if (mine != null && ask.wantsResult()) {
            return answered(List.of(mine.result));
        }
        if (now() < cancelled.getOrDefault(ask.id(), -Key.PLACE) + Key.PLACE) {
            return answered(null); // a late copy of an attempt that has ended
        }
        List<Grant> own = grantsOf(ask);
        if (!own.isEmpty()) {
            return answered(again(ask, own, from));
        }
        Waiter waiter = attempts.get(ask.id());
        if (waiter == null) {
            waiter = new Waiter(++arrivals);
        } else if (waiter.isWaiting) {
            replace(waiter);
        }
        waiter.ask = ask;
        Key blocker = blocker(waiter);
        if (ask.isRecovery() && (blocker != null || key(ask.keys().get(0)).expired(now()) == null)) {
            return answered(null);
        }
        if (blocker == null) {
            forget(waiter);
            return answered(grant(ask, from).reply(ask, now()));
        }
        join(waiter, blocker);
        if (ask.waiting() == 0 || from == null && ask.channel() == null) {
            leave(waiter);
            return answered(null);
        }
        return await(waiter, from);
    }

    private CompletableFuture<Object> await(Waiter waiter, MemoryConnection from) {
        waiter.isWaiting = true;
        awaitExpiry(waiter.at);
        waiter.alarm = clock.in(waiter.ask.waiting(), () -> change(() -> timeOut(waiter)));
        if (waiter.ask.channel() != null) {
            return answered(Words.bytes("WAITING"));
        }
        waiter.block(from);
        return waiter.reply;
    }

    private void timeOut(Waiter waiter) {
        if (waiter.isWaiting) {
            answer(waiter, "timeout", null);
            leave(waiter);
        }
    }

    static CompletableFuture<Object> answered(Object reply) {
        return CompletableFuture.completedFuture(reply);
    }

    void throwIfRefused(List<String> names) {
        if (isRefused(names)) {
            throw REFUSED;
        }
    }

    private boolean isRefused(List<String> names) {
        return names.stream().anyMatch(name -> key(name).isRefused);
    }

    /** The grants of an attempt that has all of its keys; otherwise none. */
    private List<Grant> grantsOf(Ask ask) {
        List<Grant> own = new ArrayList<>();
        for (String name : ask.keys()) {
            Grant grant = key(name).of(ask.id(), now());
            if (grant == null || !own.isEmpty() && own.get(0).token != grant.token) {
                return List.of();
            }
            own.add(grant);
        }
        return own;
    }

    /** For an attempt that claims its grants, or whose reply was lost. Its lease never becomes shorter. */
    private Object again(Ask ask, List<Grant> own, MemoryConnection from) {
        long until = Grant.until(ask.lease(), now());
        for (Grant grant : own) {
            grant.until = grant.isPending ? until : Math.max(until, grant.until);
            grant.isPending = false;
            grant.session = ask.isSession() ? from : null;
        }
        serve(ask.keys());
        return own.get(0).reply(ask, now());
    }

    /** The key for which the attempt has to wait: the one in whose queue it is, if that is one of several. */
    private Key blocker(Waiter waiter) {
        Key found = null;
        for (String name : waiter.ask.keys()) {
            Key key = key(name);
            boolean mayBe = found == null || key == waiter.at;
            if (mayBe && (key.hasWaiterBefore(waiter) || !key.admits(waiter.ask, now()))) {
                found = key;
            }
        }
        return found;
    }

    /** Grants all of the keys under one token, and returns the first grant. */
    private Grant grant(Ask ask, MemoryConnection from) {
        lastToken = Math.max(lastToken + 1, ChronoUnit.MICROS.between(Instant.EPOCH, clock.now()));
        Grant first = null;
        for (String name : ask.keys()) {
            Grant grant = key(name).grant(ask, lastToken, now());
            grant.session = ask.isSession() ? from : null;
            first = first == null ? grant : first;
        }
        return first;
    }

    void serve(List<String> names) {
        names.forEach(name -> serve(key(name)));
    }

    /** Grants the key to waiters in their order, as far as possible. */
    void serve(Key key) {
        clock.cancel(key.alarm);
        for (Waiter next = key.firstWaiting(); next != null; next = key.firstWaiting()) {
            Key blocker = blocker(next);
            if (blocker == key) {
                awaitExpiry(key);
                return;
            }
            if (blocker != null) {
                join(next, blocker);
            } else {
                handOver(next);
            }
        }
    }

    /** Serves the queue when the next lease has expired. */
    private void awaitExpiry(Key key) {
        clock.cancel(key.alarm);
        long end = key.nextEnd(now());
        key.alarm = clock.in(end == Clock.NEVER ? end : end - now(), () -> change(() -> serve(key)));
    }

    private void handOver(Waiter waiter) {
        Ask ask = waiter.ask;
        forget(waiter);
        Grant grant = grant(ask, waiter.connection);
        if (ask.channel() == null) {
            answer(waiter, "", grant.reply(ask, now()));
            waiter.stop();
            return;
        }
        for (String name : ask.keys()) {
            Grant one = key(name).withToken(grant.token);
            one.isPending = true;
            one.until = now() + CLAIM;
        }
        answer(waiter, "granted", null);
        waiter.stop();
        clock.in(CLAIM, () -> change(() -> passOn(ask, grant.token)));
    }

    /** Passes on what was not claimed, as if it had never been granted. */
    private void passOn(Ask ask, long token) {
        for (String name : ask.keys()) {
            Key key = key(name);
            Grant grant = key.withToken(token);
            if (grant != null && grant.isPending) {
                key.holders.remove(grant);
                if (grant.before != null) {
                    key.holders.add(grant.before);
                }
                serve(key);
            }
        }
    }

    /** Gives a result to those in the queue that want one. They leave it. */
    void give(Key key, byte[] result) {
        for (Waiter waiter : List.copyOf(key.queue)) {
            if (!waiter.ask.wantsResult()) {
                continue;
            }
            if (waiter.isWaiting) {
                answer(waiter, "result", List.of(result));
            }
            if (waiter.reply == null) {
                given.put(waiter.ask.id(), new Given(result, now() + CLAIM));
            }
            forget(waiter);
            waiter.stop();
        }
    }

    private void join(Waiter waiter, Key key) {
        if (waiter.at != null) {
            waiter.at.queue.remove(waiter);
        }
        key.join(waiter);
        attempts.put(waiter.ask.id(), waiter);
    }

    /** Ends a wait because of a newer command of the same attempt. */
    private void replace(Waiter waiter) {
        fail(waiter, REPLACED);
        clock.cancel(waiter.alarm);
        waiter.stop();
    }

    /** Ends a wait, and reserves its place. Those behind it may get the lock. */
    private void leave(Waiter waiter) {
        clock.cancel(waiter.alarm);
        waiter.stop();
        waiter.left = now();
        serve(waiter.at);
    }

    private void forget(Waiter waiter) {
        clock.cancel(waiter.alarm);
        if (waiter.at != null) {
            waiter.at.queue.remove(waiter);
            waiter.at = null;
            attempts.remove(waiter.ask.id());
        }
    }

    /** Answers a wait: with a reply if it blocks, otherwise with a message. */
    private void answer(Waiter waiter, String message, Object reply) {
        CompletableFuture<Object> blocked = waiter.reply;
        if (blocked != null) {
            news.add(() -> blocked.complete(reply));
            return;
        }
        MemoryConnection subscriber = channels.get(waiter.ask.channel());
        String text = message + " " + waiter.ask.id() + " " + waiter.ask.keys().get(0);
        if (subscriber != null) {
            news.add(() -> subscriber.deliver(text));
        }
    }

    private void fail(Waiter waiter, RuntimeException error) {
        CompletableFuture<Object> blocked = waiter.reply;
        if (blocked != null) {
            news.add(() -> blocked.completeExceptionally(error));
        }
    }

    /** Ends an attempt, whether it waits or holds the lock. */
    long cancel(String name, String id) {
        cancelled.values().removeIf(at -> now() >= at + Key.PLACE);
        cancelled.put(id, now());
        long ended = 0;
        Waiter waiter = attempts.get(id);
        if (waiter != null) {
            ended = 1;
            Key at = waiter.at;
            if (waiter.isWaiting) {
                answer(waiter, "cancelled", null);
                waiter.stop();
            }
            forget(waiter);
            serve(at);
        }
        Key key = key(name);
        Grant grant = key.of(id, now());
        if (grant != null) {
            ended = 1;
            key.holders.remove(grant);
            serve(key);
        }
        return ended;
    }

    /** Refuses the key, and ends the waits for it. */
    void refuse(String name) {
        key(name).isRefused = true;
        for (Waiter waiter : List.copyOf(attempts.values())) {
            if (waiter.isWaiting && isRefused(waiter.ask.keys())) {
                if (waiter.reply != null) {
                    fail(waiter, REFUSED);
                } else {
                    answer(waiter, "unblocked", null);
                }
                leave(waiter);
            }
        }
    }

    /** Ends the leases of the holders now. */
    void expire(Key key) {
        for (Grant grant : key.holders) {
            if (!grant.isPending) {
                grant.until = Math.min(grant.until, now());
            }
        }
        serve(key);
    }

    /** The connection gets the messages of the channel. */
    void subscribe(String channel, MemoryConnection connection) {
        channels.put(channel, connection);
    }

    /** Ends what depends on a connection: its subscription, its wait, and its locks. */
    void disconnect(MemoryConnection connection) {
        channels.values().remove(connection);
        for (Waiter waiter : List.copyOf(attempts.values())) {
            if (waiter.isWaiting && waiter.connection == connection) {
                fail(waiter, new ServerException("the connection has ended", null));
                leave(waiter);
            }
        }
        for (Key key : List.copyOf(keys.values())) {
            for (Grant grant : key.holders) {
                if (grant.session == connection) {
                    grant.until = Math.min(grant.until, now() + Grant.MARGIN);
                }
            }
            serve(key);
        }
    }
}
