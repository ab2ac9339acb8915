package dev.serverlock.internal;

import dev.serverlock.Hooks;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.internal.attempt.AsyncAttempt;
import dev.serverlock.internal.attempt.Attempt;
import dev.serverlock.internal.attempt.Resources;
import dev.serverlock.internal.command.Grant;
import dev.serverlock.internal.command.Module;
import dev.serverlock.internal.command.Portable;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.connection.Blocking;
import dev.serverlock.internal.connection.Connections;
import dev.serverlock.internal.connection.Subscription;
import dev.serverlock.internal.hold.Commands;
import dev.serverlock.internal.hold.Debts;
import dev.serverlock.internal.hold.Followed;
import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.hold.Keep;
import dev.serverlock.internal.hold.Release;
import dev.serverlock.internal.hold.Renewal;
import dev.serverlock.internal.hold.Scopes;
import dev.serverlock.internal.hold.Sessions;
import dev.serverlock.internal.hold.Timer;
import dev.serverlock.internal.once.ServerClock;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Exchange;
import dev.serverlock.internal.wire.Router;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/** Builds one manager's parts; acquires locks for it, and reports grants, refusals and losses. Thread-safe. */
public final class Engine {
    private final Hooks hooks;
    private final Context context;
    private final Timer timer;
    private final Commands commands;
    private final Renewal renewal;
    private final Release release;
    private final Keep keep;
    private final ServerClock serverClock;
    private final Resources resources;
    private final Flights flights;
    private final Scopes scopes = new Scopes();
    private final Sessions sessions;
    /** The attempts that no thread waits for, until nothing is left of them. */
    private final Set<AsyncAttempt> pending = ConcurrentHashMap.newKeySet();

    private final Hold.Watcher watcher = new Hold.Watcher() {
        @Override
        public void lost(Hold hold, LockLostException why) {
            context.callbacks().execute(() -> report(hold, why));
        }

        @Override
        public void dropped(Hold hold) {
            scopes.leave(hold);
            timer.forget();
            sessions.drop(hold);
            hold.over(Hooks.End.EXPIRED, null);
        }
    };

    public Engine(Options options) {
        hooks = options.hooks();
        context = new Context(options.clock(), options.timeout(), options.log(), options.continuations());
        flights = new Flights(context);
        timer = new Timer(context, this::renew);
        Router router = new Router(options.server());
        Module module = new Module(context, options.mayUseScripts(), options.warns());
        Portable portable = new Portable(context);
        Debts debts = new Debts(context, timer);
        sessions = new Sessions(context, router, timer);
        commands = new Commands(context, router, module, portable, timer);
        renewal = new Renewal(context, router, commands, timer);
        release = new Release(context, router, commands, timer, debts, sessions, hooks);
        keep = new Keep(context, commands, debts, release);
        serverClock = new ServerClock(context, router);
        resources = new Resources(
                context,
                router,
                module,
                portable,
                new Subscription(context, router),
                new Connections(context, router),
                new Blocking(context, router),
                sessions,
                debts);
    }

    private void renew(List<Hold> due) {
        renewal.begin(due);
    }

    public Context context() {
        return context;
    }

    /** Extends, verifies and fences this manager's holds. */
    public Commands commands() {
        return commands;
    }

    public Scopes scopes() {
        return scopes;
    }

    /** The clock of each server, and its margin. */
    ServerClock serverClock() {
        return serverClock;
    }

    /**
     * Returns the Held that this thread has and gets again; null if there is none. Throws LockMisuseException if it
     * must not ask for the lock now.
     */
    public Object again(Request request) {
        context.checkOpen(request.name());
        return scopes.again(request);
    }

    /** What an attempt got: the lock, or another holder's result. The other one is null. */
    public record Got(Hold hold, byte[] result) {}

    /** Throws LockException if the lock was not granted. */
    public Hold acquire(Request request) throws InterruptedException {
        return acquireOrResult(request).hold();
    }

    /** Throws LockException if there is neither. */
    public Got acquireOrResult(Request request) throws InterruptedException {
        again(request);
        Followed followed = Followed.begin(context, hooks, request);
        Attempt attempt = new Attempt(resources, request);
        Grant grant;
        try {
            grant = attempt.run();
        } catch (InterruptedException cancelled) {
            followed.failed(resources.module().wasMissing(), cancelled);
            throw cancelled;
        } catch (LockException refused) {
            followed.failed(resources.module().wasMissing(), refused);
            context.callBack(
                    () -> hooks.refused(request.name(), Clock.duration(context.now() - attempt.began()), refused));
            throw refused;
        }
        Hold hold = new Hold(context, watcher, request, grant, attempt.began());
        if (grant.result() != null) {
            attempt.settleOverdue(() -> true);
            if (grant.isPortable()) {
                release.releaseUnseen(hold);
            }
            followed.result(grant.isPortable());
            return new Got(null, grant.result());
        }
        granted(hold, followed);
        if (attempt.session() != null) {
            sessions.keep(attempt.session(), hold);
        }
        attempt.settleOverdue(hold::isReleased);
        timer.add(hold);
        context.callBack(() -> hooks.granted(request.name(), Clock.duration(hold.granted() - hold.began())));
        return new Got(hold, null);
    }

    /**
     * Acquires the lock without a thread that waits, for no thread in particular. Any other completion of the future
     * ends the attempt, or releases the lock. held: what the application gets.
     */
    public <T> CompletableFuture<T> acquireAsync(Request request, Function<Hold, T> held) {
        CompletableFuture<T> future = new CompletableFuture<>();
        LockException unfit = resources.router().isAsync() ? request.unfitForAsync() : needsLettuce(request);
        Followed followed = Followed.begin(context, hooks, request);
        AsyncAttempt attempt = new AsyncAttempt(resources, request, pending);
        CompletableFuture<Grant> outcome = unfit == null ? attempt.start() : CompletableFuture.failedFuture(unfit);
        outcome.whenComplete((grant, error) -> {
            if (error == null) {
                granted(attempt, request, grant, followed, held, future);
            } else if (Exchange.cause(error) instanceof LockException refused) {
                long waited = context.now() - attempt.began();
                followed.failed(resources.module().wasMissing(), refused);
                context.complete(() -> {
                    context.callBack(() -> hooks.refused(request.name(), Clock.duration(waited), refused));
                    future.completeExceptionally(refused);
                });
            } else { // the future is complete
                followed.failed(resources.module().wasMissing(), new CancellationException());
            }
        });
        future.whenComplete((value, error) -> attempt.cancel());
        return future;
    }

    private static void granted(Hold hold, Followed followed) {
        followed.granted(hold.isPortable(), hold.token(), hold.granted());
        hold.follow(followed);
    }

    private <T> void granted(
            AsyncAttempt attempt,
            Request request,
            Grant grant,
            Followed followed,
            Function<Hold, T> held,
            CompletableFuture<T> future) {
        Hold hold = new Hold(context, watcher, request, grant, attempt.began());
        if (future.isDone()) {
            followed.failed(grant.isPortable(), new CancellationException());
        } else {
            granted(hold, followed);
        }
        attempt.settleOverdue(hold::isReleased);
        timer.add(hold);
        T value = held.apply(hold);
        context.complete(() -> {
            if (!future.isDone()) {
                context.callBack(() -> hooks.granted(request.name(), Clock.duration(hold.granted() - hold.began())));
            }
            if (!future.complete(value)) {
                giveUp(hold);
            }
        });
    }

    private static LockException needsLettuce(Request request) {
        String why = "futures need Lettuce: Jedis blocks a thread for each command; use acquire and release";
        return new LockMisuseException(request.name(), why, null);
    }

    /** Reports a lost hold. Called once per hold, in one of a few threads. */
    private void report(Hold hold, LockLostException why) {
        Request request = hold.request();
        context.warn(why.getMessage(), null);
        hold.over(Hooks.End.LOST, why);
        context.callBack(() -> hooks.lost(request.name(), Clock.duration(context.now() - hold.granted()), why));
        if (request.onLost() != null) {
            context.callBack(() -> request.onLost().accept(why));
        }
        sessions.drop(hold);
    }

    /** Returns whether the lock was held to the end. later: how long others still cannot get it, in nanoseconds. */
    public boolean release(Hold hold, long later) {
        scopes.leave(hold);
        return release.release(hold, later);
    }

    /** Like release, without a thread that waits. */
    public CompletableFuture<Boolean> releaseAsync(Hold hold, long later) {
        if (!resources.router().isAsync()) {
            return CompletableFuture.failedFuture(needsLettuce(hold.request()));
        }
        scopes.leave(hold);
        return release.releaseAsync(hold, later);
    }

    /** Ends a hold whose lock stays until then. See {@link Keep#keep}. */
    boolean keep(Hold hold, long until, boolean isLong) {
        return keep.keep(hold, until, isLong);
    }

    /** Releases the lock in the background. */
    void giveUp(Hold hold) {
        release.giveUp(hold);
    }

    /** Returns the reply to LOCK.INFO. Throws ReplyError or ConnectionLost. */
    public Object inspect(Request request) {
        return resources.router().call(request.key(), request.info(), context.timeout());
    }

    /** Closes the manager's connections, and stops renewing. */
    public void close() {
        if (context.isClosed()) {
            return;
        }
        context.close();
        pending.forEach(AsyncAttempt::close);
        flights.close();
        timer.close();
        resources.subscription().close();
        resources.connections().close();
        resources.blocking().close();
        sessions.close();
        context.endThreads();
    }

    /** The callers of this manager that share results. */
    public Flights flights() {
        return flights;
    }

    /** How many attempts no thread waits for. */
    int pending() {
        return pending.size();
    }

    Resources resources() {
        return resources;
    }

    Timer timer() {
        return timer;
    }
}
