package dev.serverlock.internal;

import dev.serverlock.LockException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Errors;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * The callers of one manager that want the result for the same key. One of them leads: it makes the attempt, and may
 * compute. The others follow, and get what it gets. If the leader leaves without a result, the caller that has waited
 * longest leads. Thread-safe.
 */
public final class Flights {
    private final Context context;
    private final Map<ByteBuffer, Flight> flights = new HashMap<>();

    Flights(Context context) {
        this.context = context;
    }

    private static final class Flight {
        final ByteBuffer key;
        /** Null once there is a result. */
        Caller leader;
        /** In the order of arrival. */
        final Set<Caller> followers = new LinkedHashSet<>();

        Flight(ByteBuffer key) {
            this.key = key;
        }
    }

    /** Joins those that want the same result. The caller must leave. */
    public synchronized Caller join(Request request) {
        context.checkOpen(request.name());
        Flight flight = flights.computeIfAbsent(ByteBuffer.wrap(request.key()), Flight::new);
        Caller caller = new Caller(request, flight);
        if (flight.leader == null) {
            lead(flight, caller);
        } else if (flight.leader.thread == caller.thread) {
            throw new LockMisuseException(request.name(), "this thread is already computing its result", null);
        } else {
            flight.followers.add(caller);
        }
        return caller;
    }

    private static void lead(Flight flight, Caller caller) {
        flight.leader = caller;
        caller.shared.complete(null);
    }

    /** Ends a flight, unless its leader has left it or the manager is closed. Returns those that followed. */
    private synchronized List<Caller> end(Caller leader) {
        Flight flight = leader.flight;
        if (flight.leader != leader) {
            return List.of();
        }
        flights.remove(flight.key, flight);
        flight.leader = null;
        List<Caller> followers = List.copyOf(flight.followers);
        flight.followers.clear();
        return followers;
    }

    private synchronized void leave(Caller caller) {
        Flight flight = caller.flight;
        flight.followers.remove(caller);
        if (flight.leader != caller) {
            return;
        }
        Iterator<Caller> next = flight.followers.iterator();
        if (next.hasNext()) {
            Caller longest = next.next();
            next.remove();
            lead(flight, longest);
        } else {
            flight.leader = null;
            flights.remove(flight.key, flight);
        }
    }

    /** Ends all waits: call this when the manager is closed. */
    void close() {
        List<Caller> leaders;
        synchronized (this) {
            leaders = flights.values().stream().map(flight -> flight.leader).toList();
        }
        leaders.forEach(
                leader -> leader.fail(new LockMisuseException(leader.request.name(), "its Locks are closed", null)));
    }

    /** How many callers there are. */
    synchronized int count() {
        return flights.values().stream()
                .mapToInt(flight -> flight.followers.size() + 1)
                .sum();
    }

    /** One caller. Its thread alone calls its methods. */
    public final class Caller {
        private final Request request;
        private final Flight flight;
        private final Thread thread = Thread.currentThread();
        private final long began = context.now();
        /** Completes with the result, with an error, or with null when this caller leads. */
        private final CompletableFuture<byte[]> shared = new CompletableFuture<>();

        private Caller(Request request, Flight flight) {
            this.request = request;
            this.flight = flight;
        }

        private long left() {
            return request.waiting() == Clock.NEVER ? Clock.NEVER : request.waiting() - (context.now() - began);
        }

        /** Waits for the result of the leader. Returns null when this caller leads. */
        public byte[] await() throws InterruptedException {
            if (context.await(shared, left())) {
                try {
                    byte[] result = shared.join();
                    if (result != null) {
                        return result.clone(); // the callers must not see each other's changes
                    }
                } catch (CompletionException error) {
                    throw Errors.again((LockException) error.getCause());
                }
                if (left() > 0) {
                    return null;
                }
            }
            throw Errors.timedOut(request.name(), context.now() - began);
        }

        /** The request of an attempt, with what is left of the wait. */
        public Request request() {
            return request.withWaiting(Duration.ofNanos(Math.max(Clock.MILLISECOND, left())));
        }

        /** Gives all followers the result. Those that come from now on begin a new flight. */
        public void land(byte[] result) {
            List<Caller> followers = end(this);
            if (!followers.isEmpty()) {
                byte[] copy = result.clone();
                followers.forEach(follower -> follower.shared.complete(copy));
            }
        }

        /** Gives all followers the error. */
        public void fail(LockException error) {
            end(this).forEach(follower -> follower.shared.completeExceptionally(error));
        }

        /** If this caller still leads, another one does from now on. */
        public void leave() {
            Flights.this.leave(this);
        }
    }
}
