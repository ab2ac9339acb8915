package dev.serverlock;

import dev.serverlock.internal.Engine;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.wire.ConnectionLost;
import dev.serverlock.internal.wire.ReplyError;
import dev.serverlock.internal.wire.Words;
import java.time.Duration;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/**
 * Campaigns for a key. The leader keeps the key's lock for as long as it lives. {@link #close} steps down for good. Any
 * thread may call its methods.
 */
public final class Leader implements AutoCloseable {
    static final Duration TURN = Duration.ofMinutes(1);

    private final Engine engine;
    private final Request request;

    private Thread thread;
    private volatile boolean isStopped;
    private Held held;
    private CompletableFuture<Void> over;

    Leader(Engine engine, Request request) {
        this.engine = engine;
        this.request = request;
    }

    /**
     * Sets a label for humans, shown in INFO and in {@link #observe}. The default names this process: {@code host:pid}.
     *
     * @param owner 1 to 128 visible ASCII characters
     * @return a copy with this option
     */
    public Leader owner(String owner) {
        return new Leader(engine, request.withOwner(owner));
    }

    /**
     * Sends no label.
     *
     * @return a copy with this option
     */
    public Leader withoutOwner() {
        return new Leader(engine, request.withoutOwner());
    }

    /**
     * Campaigns in its own thread until {@link #close}. Calls {@code elected} after each election, and {@code deposed}
     * when that term ends: after a loss, {@link #resign} or {@link #close}. Others are elected once {@code deposed} has
     * returned, or the lease has expired.
     *
     * @param elected called with the fencing token
     * @param deposed called with the same token
     * @return this
     * @throws LockMisuseException if it is already campaigning
     */
    public synchronized Leader start(LongConsumer elected, LongConsumer deposed) {
        engine.context().checkOpen(request.name());
        if (thread != null) {
            throw new LockMisuseException(request.name(), "it is already campaigning", null);
        }
        thread = engine.context().thread("serverlock-leader", () -> campaign(elected, deposed));
        thread.start();
        return this;
    }

    private void campaign(LongConsumer elected, LongConsumer deposed) {
        long span = Math.min(Clock.SECOND, request.lease() / 3);
        String known = "";
        while (!isStopped) {
            try {
                Held won = new Held(engine, engine.acquire(request));
                known = "";
                if (lead(won, elected, deposed)) {
                    engine.context().pause(span); // gives others a turn
                }
            } catch (LockArgumentException | LockMisuseException hopeless) {
                engine.context().warn("the campaign has ended", hopeless);
                return;
            } catch (LockTimeoutException somebodyElseLeads) {
                // Try again.
            } catch (LockException error) {
                if (!known.equals(error.getMessage())) {
                    known = error.getMessage();
                    engine.context().warn("the campaign continues", error);
                }
                pause(span);
            } catch (InterruptedException stopped) {
                // close has been called.
            }
        }
    }

    private void pause(long span) {
        try {
            engine.context().pause(span);
        } catch (InterruptedException stopped) {
            // close has been called.
        }
    }

    /** Returns whether it resigned rather than lost the lock. */
    private boolean lead(Held won, LongConsumer elected, LongConsumer deposed) throws InterruptedException {
        CompletableFuture<Void> turn = new CompletableFuture<>();
        won.hold().onLost(() -> turn.complete(null));
        synchronized (this) {
            held = won;
            over = turn;
        }
        boolean isOurs = true;
        try {
            engine.context().callBack(() -> elected.accept(won.token()));
            engine.context().await(turn, Clock.NEVER);
        } finally {
            synchronized (this) {
                held = null;
                over = null;
            }
            engine.context().callBack(() -> deposed.accept(won.token()));
            isOurs = won.release();
        }
        return isOurs;
    }

    /** {@return the fencing token while this campaign leads; empty otherwise} */
    public OptionalLong token() {
        Held leading;
        synchronized (this) {
            leading = held;
        }
        return leading == null || leading.left().isZero() ? OptionalLong.empty() : OptionalLong.of(leading.token());
    }

    /** Steps down, and campaigns again after giving others a turn. */
    public synchronized void resign() {
        if (over != null) {
            over.complete(null);
        }
    }

    /** Ends the campaign and steps down. Returns when that is done, or when the thread is interrupted. */
    @Override
    public void close() {
        Thread campaign;
        synchronized (this) {
            isStopped = true;
            campaign = thread;
        }
        if (campaign == null || campaign == Thread.currentThread()) {
            resign();
            return;
        }
        campaign.interrupt();
        try {
            campaign.join();
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Reports the current leader and then each change, in its own thread. Asks the server three times per lease.
     *
     * @param changed called with the leader, or with token 0 while there is none
     * @return the observation, which ends when this is closed
     */
    public AutoCloseable observe(Consumer<Leadership> changed) {
        AtomicBoolean hasEnded = new AtomicBoolean();
        engine.context()
                .thread("serverlock-observer", () -> watch(changed, hasEnded))
                .start();
        return () -> hasEnded.set(true);
    }

    private void watch(Consumer<Leadership> changed, AtomicBoolean hasEnded) {
        long known = -1;
        try {
            while (!hasEnded.get() && !engine.context().isClosed()) {
                Leadership leader = inspect();
                if (leader != null && leader.token() != known) {
                    known = leader.token();
                    engine.context().callBack(() -> changed.accept(leader));
                }
                engine.context().pause(Math.max(Clock.MILLISECOND, request.lease() / 3));
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Asks the server for the leader. Returns null if no server replied. */
    private Leadership inspect() {
        Leadership none = new Leadership(0, "");
        Object reply;
        try {
            reply = engine.inspect(request);
        } catch (ReplyError error) {
            return none;
        } catch (ConnectionLost noServer) {
            return null;
        }
        boolean isHeld = Words.text(Words.field(reply, "state")).equals("held");
        return isHeld && Words.field(reply, "token") instanceof Long token
                ? new Leadership(token, Words.text(Words.field(reply, "owner")))
                : none;
    }
}
