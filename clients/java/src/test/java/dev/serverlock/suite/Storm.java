package dev.serverlock.suite;

import com.google.gson.JsonObject;
import dev.serverlock.LockRefusedException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** Many attempts, interrupted at random moments. */
final class Storm {
    /** It ends with an error, or has got what it asked for. */
    interface Attempt {
        void run() throws Exception;
    }

    private final Function<String, Attempt> attemptFor;
    private final List<String> keys;
    private final double within;
    private final DelayQueue<Target> targets = new DelayQueue<>();
    private final AtomicInteger left;
    private final AtomicInteger granted = new AtomicInteger();
    private final AtomicInteger cancelled = new AtomicInteger();
    private final AtomicInteger refused = new AtomicInteger();
    private final List<String> failed = new ArrayList<>();

    Storm(JsonObject order, Function<String, Attempt> attemptFor) {
        this.attemptFor = attemptFor;
        keys = List.of(Order.texts(order.getAsJsonArray("among")));
        within = order.get("within_ms").getAsDouble();
        left = new AtomicInteger(order.get("attempts").getAsInt());
    }

    Map<String, Object> play(int atOnce) throws InterruptedException {
        Thread interrupter = new Thread(this::interruptAll, "storm");
        interrupter.setDaemon(true);
        interrupter.start();
        List<Thread> callers = new ArrayList<>();
        for (int number = 0; number < atOnce; number++) {
            Thread caller = new Thread(
                    () -> {
                        while (left.getAndDecrement() > 0) {
                            attempt();
                        }
                    },
                    "storm-caller");
            caller.setDaemon(true);
            caller.start();
            callers.add(caller);
        }
        for (Thread caller : callers) {
            caller.join();
        }
        interrupter.interrupt();
        interrupter.join();
        return Driver.fields(
                "granted", granted.get(), "cancelled", cancelled.get(), "refused", refused.get(), "failed", failed);
    }

    private void interruptAll() {
        try {
            while (true) {
                targets.take().interrupt();
            }
        } catch (InterruptedException theEnd) {
            // All attempts have ended.
        }
    }

    /**
     * Callers do this as well, before each attempt: on a busy machine, the thread that does nothing else gets its turn
     * when the storm is over.
     */
    private void interruptDue() {
        for (Target due = targets.poll(); due != null; due = targets.poll()) {
            due.interrupt();
        }
    }

    /** Interrupts one attempt, and nothing after it. */
    private static final class Target implements Delayed {
        private final Thread thread = Thread.currentThread();
        private final long at;
        private boolean isOver;

        Target(double afterMs) {
            at = System.nanoTime() + (long) (afterMs * 1e6);
        }

        synchronized void interrupt() {
            if (!isOver) {
                thread.interrupt();
            }
        }

        /** Returns whether it was interrupted without an InterruptedException: a sent call is awaited. */
        synchronized boolean end() {
            isOver = true;
            return Thread.interrupted();
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(at - System.nanoTime(), TimeUnit.NANOSECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(at - ((Target) other).at, 0);
        }
    }

    private void attempt() {
        ThreadLocalRandom dice = ThreadLocalRandom.current();
        Attempt attempt = attemptFor.apply(keys.get(dice.nextInt(keys.size())));
        double after = within * Math.pow(dice.nextDouble(), 3);
        if (dice.nextInt(4) == 0) {
            after = Math.floor(after / 5) * 5;
        }
        Target target = new Target(after);
        targets.add(target);
        interruptDue();
        AtomicInteger became = granted;
        try {
            attempt.run();
        } catch (InterruptedException interrupt) {
            became = cancelled;
        } catch (LockRefusedException somebodyElse) {
            became = refused;
        } catch (Exception | Error error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            synchronized (failed) {
                failed.add(trace.toString());
            }
            became = new AtomicInteger();
        }
        (target.end() ? cancelled : became).incrementAndGet();
    }
}
