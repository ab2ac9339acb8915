package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.Options;
import dev.serverlock.internal.Runs;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.once.Schedule;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Clocked;
import dev.serverlock.internal.runtime.SystemClock;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Server;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;

/**
 * The locks of one client. Create one {@code Locks} for each Redis client in the application and keep it: two of them
 * do not see each other's locks. Any thread may call its methods.
 */
public final class Locks implements AutoCloseable {
    /** An unlimited wait. */
    public static final Duration FOREVER = Duration.ofNanos(Long.MAX_VALUE);

    final Engine engine;
    private final Runs runs;

    private Locks(Builder builder) {
        engine = new Engine(builder.options());
        runs = new Runs(engine);
    }

    /**
     * Creates a client's locks, with the default options.
     *
     * @param server from JedisServer or LettuceServer
     * @return the locks
     */
    public static Locks over(Server server) {
        return builder(server).build();
    }

    /**
     * Starts building a client's locks with other options.
     *
     * @param server from JedisServer or LettuceServer
     * @return the builder
     */
    public static Builder builder(Server server) {
        return new Builder(server);
    }

    /**
     * A lock with one holder at a time.
     *
     * @param key the key
     * @param lease how long a crashed holder keeps the lock; it is renewed while it is held
     * @return the lock
     */
    public ServerLock lock(String key, Duration lease) {
        return lock(bytes(key), lease);
    }

    /**
     * A lock with one holder at a time.
     *
     * @param key the key
     * @param lease how long a crashed holder keeps the lock; it is renewed while it is held
     * @return the lock
     */
    public ServerLock lock(byte[] key, Duration lease) {
        return create(List.of(key.clone()), lease, Request.Form.ONE, false, null);
    }

    /**
     * A lock with any number of holders that share it (readers). It excludes the holder of {@link #lock} (a writer).
     *
     * @param key the key
     * @param lease how long a crashed holder keeps the lock
     * @return the lock
     */
    public ServerLock shared(String key, Duration lease) {
        return create(List.of(bytes(key)), lease, Request.Form.ONE, true, null);
    }

    /**
     * A lock with at most n holders at a time.
     *
     * @param key the key
     * @param n 1 to 4096
     * @param lease how long a crashed holder keeps its place
     * @return the lock
     */
    public ServerLock limit(String key, int n, Duration lease) {
        return create(List.of(bytes(key)), lease, Request.Form.ONE, false, n);
    }

    /**
     * A lock on all of the keys or none of them, under one token. A waiting attempt holds none of them. In a cluster
     * the keys must be in one slot: for example, give them a common part in braces.
     *
     * @param keys 1 to 1024 different keys
     * @param lease how long a crashed holder keeps them
     * @return the lock
     */
    public ServerLock allOf(List<String> keys, Duration lease) {
        if (keys == null) {
            throw new LockArgumentException("null", "keys is null", null);
        }
        return create(keys.stream().map(Locks::bytes).toList(), lease, Request.Form.MANY, false, null);
    }

    /**
     * A lock that can be acquired only if its last holder did not release it. {@link Held#predecessor} names that
     * holder. An attempt does not wait.
     *
     * @param key the key
     * @param lease how long a crashed holder keeps the lock
     * @return the lock
     */
    public ServerLock recover(String key, Duration lease) {
        return create(List.of(bytes(key)), lease, Request.Form.RECOVERY, false, null);
    }

    /**
     * A body that runs once per period, in one of the processes that ask: for cron jobs. It needs permission to run
     * TIME.
     *
     * @param key the key
     * @param period the time from one tick to the next, at least 10 seconds
     * @return what runs once per period
     */
    public Once once(String key, Duration period) {
        return new Once(engine, runs, Schedule.of(bytes(key), period));
    }

    /**
     * A value that many callers need at the same moment, such as a cache entry that has expired: one of them computes
     * it, and all that wait get it.
     *
     * @param key the key
     * @param lease how soon another caller computes if the process that computes crashes; it is renewed meanwhile
     * @return what computes the value
     */
    public SingleFlight singleFlight(String key, Duration lease) {
        return SingleFlight.of(engine, new Request(List.of(bytes(key)), lease, Request.Form.ONE, false, null));
    }

    /**
     * A campaign for a key, which {@link Leader#start} begins.
     *
     * @param key the key
     * @param lease how soon a crashed leader is replaced
     * @return the campaign
     */
    public Leader leader(String key, Duration lease) {
        Request request = new Request(List.of(bytes(key)), lease, Request.Form.ONE, false, null);
        return new Leader(engine, request.withWaiting(Leader.TURN));
    }

    private ServerLock create(List<byte[]> keys, Duration lease, Request.Form form, boolean isShared, Integer limit) {
        return new ServerLock(engine, new Request(keys, lease, form, isShared, limit));
    }

    private static byte[] bytes(String key) {
        if (key == null) {
            throw new LockArgumentException("null", "key is null", null);
        }
        return Words.bytes(key);
    }

    /**
     * Closes its own connections, except those of held {@link ServerLock#session} locks; the client stays open. Held
     * locks are no longer renewed, and attempts throw {@link LockMisuseException}.
     */
    @Override
    public void close() {
        engine.close();
    }

    /** Builds {@link Locks}. */
    public static final class Builder {
        private final Server server;
        private long timeout = 5 * Clock.SECOND;
        private Hooks hooks = new Hooks() {};
        private System.Logger log = System.getLogger("dev.serverlock");
        private Executor continuations = ForkJoinPool.commonPool();
        private boolean mayUseScripts = true;
        private boolean warns = true;
        /** The tests of this package set another one. */
        Clock clock;

        private Builder(Server server) {
            this.server = Objects.requireNonNull(server, "server");
            clock = server instanceof Clocked clocked ? clocked.clock() : SystemClock.SYSTEM;
        }

        /**
         * Sets how long one reply may take. The default is 5 seconds. A Jedis client's shorter time-out still applies.
         *
         * @param timeout above zero
         * @return this
         */
        public Builder timeout(Duration timeout) {
            long nanos = Clock.nanos(timeout);
            if (nanos <= 0) {
                throw new LockArgumentException("", "timeout is " + timeout + ", not above zero", null);
            }
            this.timeout = Math.min(nanos, 3600 * Clock.SECOND);
            return this;
        }

        /**
         * Sets what to call when locks are granted, refused, lost and released.
         *
         * @param hooks the hooks
         * @return this
         */
        public Builder hooks(Hooks hooks) {
            this.hooks = Objects.requireNonNull(hooks, "hooks");
            return this;
        }

        /**
         * Sets where warnings go. The default is the logger {@code dev.serverlock}.
         *
         * @param log the logger
         * @return this
         */
        public Builder logger(System.Logger log) {
            this.log = Objects.requireNonNull(log, "log");
            return this;
        }

        /**
         * Sets where the futures of {@link ServerLock#acquireAsync} and {@link Held#releaseAsync} complete, and what
         * the application has added to them runs. The default is the common pool. With {@code Runnable::run} they
         * complete in a thread that must not block: it also handles all other attempts of these locks.
         *
         * @param executor the executor
         * @return this
         */
        public Builder executor(Executor executor) {
            continuations = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /**
         * Sets whether one warning is logged if the module is missing. The default is true.
         *
         * @param warns false for no warning
         * @return this
         */
        public Builder warnWithoutModule(boolean warns) {
            this.warns = warns;
            return this;
        }

        /**
         * Makes attempts throw {@link LockUnavailableException} where the module is not loaded.
         *
         * @return this
         */
        public Builder withoutScripts() {
            mayUseScripts = false;
            return this;
        }

        private Options options() {
            return new Options(server, clock, timeout, hooks, log, continuations, mayUseScripts, warns);
        }

        /** {@return the locks} */
        public Locks build() {
            return new Locks(this);
        }
    }
}
