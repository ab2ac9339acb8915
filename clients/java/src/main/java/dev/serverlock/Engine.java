package dev.serverlock;

import dev.serverlock.spi.Connection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** The core of a manager: attempts, renewal, and the commands for held locks. */
final class Engine {
    /**
     * How many threads run callbacks of the application, and how many give back what could not be given back at once.
     */
    static final int THREADS = 2;

    private static final long ASK_FOR_MODULE = 5 * Clock.SECOND;
    private static final String FENCED = """
            if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end
            return {redis.call(unpack(ARGV, 2))}
            """;

    final Clock clock;
    final long timeout;
    final Router router;
    final Timer timer = new Timer(this);
    final Renewal renewal = new Renewal(this);
    final Subscription subscription = new Subscription(this);
    final Connections connections = new Connections(this);
    final Blocking blocking = new Blocking(this);
    final Portable portable = new Portable(this);
    final Release release = new Release(this);
    final Hooks hooks;
    /** Gives back what could not be given back at once, without delaying renewals. */
    final ThreadPoolExecutor debts = pool("serverlock-debt");
    /** Runs callbacks of the application, which may block. */
    final ThreadPoolExecutor callbacks = pool("serverlock-callback");

    /** Until the server refuses NOTIFY. */
    volatile boolean notifies = true;

    volatile boolean notifyWorks;

    private final System.Logger log;
    private final boolean mayBeScript;
    private final AtomicBoolean mayWarn;
    private final CountDownLatch closed = new CountDownLatch(1);
    private final Set<Connection> sessions = ConcurrentHashMap.newKeySet();
    private volatile boolean isMissed;
    private long missedUntil;

    Engine(Locks.Builder options) {
        clock = options.clock;
        timeout = options.timeout;
        hooks = options.hooks;
        log = options.log;
        mayBeScript = options.isPortable;
        mayWarn = new AtomicBoolean(options.warns);
        router = new Router(options.server);
    }

    /** A few daemon threads, which end when they are idle. */
    private ThreadPoolExecutor pool(String name) {
        ThreadPoolExecutor made = new ThreadPoolExecutor(
                THREADS, THREADS, 2, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> thread(name, work));
        made.allowCoreThreadTimeOut(true);
        return made;
    }

    Thread thread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    void warn(String text, Throwable error) {
        log.log(System.Logger.Level.WARNING, error == null ? text : text + ": " + error.getMessage());
    }

    boolean isClosed() {
        return closed.getCount() == 0;
    }

    void checkOpen(String name) {
        if (isClosed()) {
            throw new LockMisuseException(name, "its Locks are closed", null);
        }
    }

    /** Sleeps for that time, or until the manager is closed. */
    void pause(long span) throws InterruptedException {
        closed.await(span, TimeUnit.NANOSECONDS);
    }

    Hold acquire(Request request) throws InterruptedException {
        checkOpen(request.name);
        Scopes.refuseAgain(this, request);
        Attempt attempt = new Attempt(this, request);
        Grant grant;
        try {
            grant = attempt.run();
        } catch (LockException refused) {
            callBack(() -> hooks.refused(request.name, Clock.duration(clock.now() - attempt.began), refused));
            throw refused;
        }
        Hold hold = new Hold(this, request, grant, attempt.began);
        if (hold.connection != null) {
            watch(hold);
        }
        attempt.settleOverdue(hold::isReleased);
        timer.add(hold);
        callBack(() -> hooks.granted(request.name, Clock.duration(hold.granted - hold.began)));
        return hold;
    }

    /** Runs a hook or callback of the application, whose errors must not cost a lock. */
    void callBack(Runnable call) {
        try {
            call.run();
        } catch (RuntimeException | Error error) { // as when a class of theirs is missing
            log.log(System.Logger.Level.WARNING, "a hook or callback failed", error);
        }
    }

    private void watch(Hold hold) {
        sessions.add(hold.connection);
        hold.connection.onEnd(() -> {
            sessions.remove(hold.connection);
            hold.lose("the connection of its session has ended", true);
        });
    }

    void endSession(Hold hold) {
        if (hold.connection != null) {
            hold.connection.close();
        }
    }

    /** How long a reply may take while no caller waits for it. */
    long patience() {
        return Math.min(Clock.SECOND, timeout);
    }

    /** Cancels an attempt: at once if the server is reachable, otherwise in the background. */
    void cancel(Request request, String id, boolean isPortable, boolean isReachable) {
        byte[] idBytes = Words.bytes(id);
        Timer.Debt debt = () -> {
            if (isPortable) {
                portable.cancel(request, idBytes);
                return;
            }
            for (byte[] key : request.keys) {
                router.call(
                        key,
                        new Words(3).add("LOCK.CANCEL").add(key).add(idBytes).done(),
                        patience());
            }
        };
        if (isReachable) {
            try {
                debt.pay();
                return;
            } catch (ReplyError | ConnectionLost error) {
                if (!Errors.mayPass(error)) {
                    return; // the server has replied, or does not let this user in
                }
            }
        }
        timer.owe(clock.now() + Math.max(request.lease + 2 * Clock.SECOND, timeout), debt);
    }

    byte[][] extendWords(Hold hold, long lease) {
        return hold.isPortable()
                ? portable.extend(hold.request, hold.token, lease)
                : hold.request.extend(hold.token, lease);
    }

    void extend(Hold hold, long lease) {
        hold.check();
        long sent = clock.now();
        boolean isDone = false;
        hold.extending(sent, lease);
        try {
            isDone = Long.valueOf(1).equals(ask(hold, hold.request.key(), () -> extendWords(hold, lease)));
        } finally {
            hold.extended(sent, lease, isDone);
            timer.add(hold);
        }
        if (!isDone) {
            hold.taken();
        }
        hold.check();
    }

    long verify(Hold hold) {
        hold.check();
        long least = Clock.NEVER;
        for (byte[] key : hold.request.keys) {
            Object reply = ask(
                    hold,
                    key,
                    () -> hold.isPortable()
                            ? portable.check(hold.request, hold.token)
                            : new Words(3)
                                    .add("LOCK.CHECK")
                                    .add(key)
                                    .add(hold.token)
                                    .done());
            least = Math.min(least, reply instanceof Long left ? left * Clock.MILLISECOND : 0);
        }
        if (least <= 0) {
            hold.taken();
        }
        hold.check();
        return Math.min(least, hold.left());
    }

    Object fenced(Hold hold, byte[][] command) {
        hold.check();
        Object reply = ask(
                hold,
                hold.request.key(),
                () -> new Words(command.length + 6)
                        .add("EVAL")
                        .add(hold.isPortable() ? Portable.FENCED : FENCED)
                        .add(2)
                        .add(hold.request.key())
                        .add(command[1])
                        .add(hold.token)
                        .addAll(command)
                        .done());
        Object first = reply instanceof List<?> list && !list.isEmpty() ? list.get(0) : null;
        if (first instanceof byte[] && Words.text(first).equals("LOCK.LOST")) {
            hold.taken();
            hold.check();
        }
        return first;
    }

    interface Command {
        byte[][] words();
    }

    /** Sends a command for a held lock, and again if the module or the script is gone. */
    Object ask(Hold hold, byte[] key, Command command) {
        try {
            return send(hold, key, command);
        } catch (ReplyError | ConnectionLost error) {
            throw Errors.typed(error, hold.request.name, Errors.NO_WAIT);
        }
    }

    /** As ask, but throws ReplyError or ConnectionLost. */
    Object send(Hold hold, byte[] key, Command command) {
        for (int tries = 0; ; tries++) {
            try {
                return router.call(key, command.words(), timeout);
            } catch (ReplyError | ConnectionLost error) {
                if (tries == 2 || !missed(hold, error)) {
                    throw error;
                }
            }
        }
    }

    /** Reports a lost hold. Called once for each, in one of a few threads. */
    void lost(Hold hold, LockLostException why) {
        warn(why.getMessage(), null);
        callBack(() -> hooks.lost(hold.request.name, Clock.duration(clock.now() - hold.granted), why));
        if (hold.request.onLost != null) {
            callBack(() -> hold.request.onLost.accept(why));
        }
    }

    /**
     * Whether to use the scripts, because the server did not know LOCK.* a moment ago. Every five seconds one caller
     * gets false, and asks for the module on behalf of all.
     */
    boolean isPortable() {
        if (!isMissed) {
            return false;
        }
        synchronized (this) {
            boolean isTooSoon = clock.now() < missedUntil;
            if (!isTooSoon) {
                missedUntil = clock.now() + ASK_FOR_MODULE;
            }
            return isTooSoon;
        }
    }

    void foundModule() {
        isMissed = false;
    }

    /** Returns whether to continue with the scripts. */
    boolean missModule(ReplyError reply) {
        if (!mayBeScript) {
            return false;
        }
        if (mayWarn.getAndSet(false)) {
            warn("the server has no LOCK.*; locks work by script, without order among waiters", reply);
        }
        synchronized (this) {
            missedUntil = clock.now() + ASK_FOR_MODULE;
            isMissed = true;
        }
        return true;
    }

    /** Returns whether to continue because the module or the script is gone. The scripts read the same value. */
    boolean missed(Hold hold, RuntimeException error) {
        if (!(error instanceof ReplyError reply)) {
            return false;
        }
        if (reply.code.equals("NOSCRIPT") && hold.isPortable()) {
            portable.missed();
            return true;
        }
        return reply.isUnknownCommand() && hold.request.needsModule() == null && mayBeScript && hold.becomePortable();
    }

    void close() {
        if (isClosed()) {
            return;
        }
        closed.countDown();
        timer.close();
        subscription.close();
        connections.close();
        blocking.close();
        sessions.forEach(Connection::close);
        debts.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
        callbacks.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
    }
}
