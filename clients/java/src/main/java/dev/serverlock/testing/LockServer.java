package dev.serverlock.testing;

import dev.serverlock.Held;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.Locks;
import dev.serverlock.internal.Losing;
import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.wire.Words;
import dev.serverlock.spi.Server;

/**
 * A lock server in memory, for the tests of an application. The code under test cannot tell its {@link Locks} from
 * those of production: they have the same engine, over connections in memory.
 *
 * <pre>{@code
 * LockServer server = new LockServer();
 * Held held = server.locks().lock("report", Duration.ofSeconds(30)).acquire();
 * server.lose(held); // what does the code do now?
 * }</pre>
 *
 * <p>Time stands still until the test moves the {@link #clock}. An attempt that waits really blocks its thread until a
 * release or the clock ends its wait.
 *
 * <p>The server keeps the rules of the module: the queue, shared and limited locks, several keys, sessions, fencing
 * tokens, {@code recover}, {@code once}, {@code singleFlight} and leaders. It does not detect deadlocks.
 * {@code replicas}, {@code fsync} and {@code fenced} throw {@link LockUnavailableException}. Any thread may call its
 * methods.
 *
 * <p>Close its Locks after the test. A hold that was not released keeps a daemon thread until its lease ends on the
 * clock.
 */
public final class LockServer {
    private final ManualClock clock = new ManualClock();
    private final Table table = new Table(clock);
    private final Commands commands = new Commands(clock, table);

    /** A server without locks. */
    public LockServer() {}

    /**
     * Creates the locks of another process, with the default options.
     *
     * @return the locks
     */
    public Locks locks() {
        return Locks.over(client());
    }

    /**
     * Creates a client for {@link Locks#builder}: the locks of another process, with other options.
     *
     * @return what JedisServer or LettuceServer is in production
     */
    public Server client() {
        return new MemoryClient(commands);
    }

    /** {@return the clock of the server and of all its locks} */
    public ManualClock clock() {
        return clock;
    }

    /**
     * Ends the lease of each holder of the key, at the server. The next waiter gets the lock. As in production, a
     * holder finds out on its next renewal, within a third of the lease, or from {@code verify}, {@code extend} or
     * {@code release}.
     *
     * @param key the key
     */
    public void expire(String key) {
        change(() -> table.expire(table.key(name(key))));
    }

    /**
     * Makes a hold lost. Its holder learns that at once, and the next waiter gets the lock.
     *
     * @param held the hold
     */
    public void lose(Held held) {
        Hold hold = Losing.lose(held, "the test has taken it");
        change(() -> hold.request().keys().forEach(key -> commands.release(Commands.text(key), hold.token(), null)));
    }

    /**
     * Makes attempts for the key throw {@link LockUnavailableException} at once until {@link #allow}, even those that
     * wait. Holders keep the lock and can release it, but cannot extend it, so it ends with its lease.
     *
     * @param key the key
     */
    public void refuse(String key) {
        change(() -> table.refuse(name(key)));
    }

    /**
     * Ends {@link #refuse}.
     *
     * @param key the key
     */
    public void allow(String key) {
        change(() -> table.key(name(key)).isRefused = false);
    }

    /**
     * Counts the attempts in the queue of the key. A test that starts a thread which waits asks until it is counted.
     *
     * @param key the key
     * @return how many wait
     */
    public int waiting(String key) {
        return table.change(() -> table.key(name(key)).waiting());
    }

    /** Makes a change, and returns once nothing is left to do about it. */
    private void change(Runnable change) {
        clock.settle();
        table.change(change);
        clock.settle();
    }

    private static String name(String key) {
        return Commands.text(Words.bytes(key));
    }
}
