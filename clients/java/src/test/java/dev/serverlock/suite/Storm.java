package dev.serverlock.suite;

import com.google.gson.JsonObject;
import dev.serverlock.LockRefusedException;
import dev.serverlock.ServerLock;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** Many attempts, interrupted at random moments. */
final class Storm {
    private final Function<String, ServerLock> lockOf;
    private final List<String> keys;
    private final double within;
    private final Calls calls;
    private final ScheduledExecutorService interrupter = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread thread = new Thread(work, "storm");
        thread.setDaemon(true);
        return thread;
    });
    private final AtomicInteger left;
    private final AtomicInteger granted = new AtomicInteger();
    private final AtomicInteger cancelled = new AtomicInteger();
    private final AtomicInteger refused = new AtomicInteger();
    private final List<String> failed = new ArrayList<>();

    Storm(JsonObject order, Calls calls, Function<String, ServerLock> lockOf) {
        this.calls = calls;
        this.lockOf = lockOf;
        keys = List.of(Order.texts(order.getAsJsonArray("among")));
        within = order.get("within_ms").getAsDouble();
        left = new AtomicInteger(order.get("attempts").getAsInt());
    }

    Map<String, Object> play(int atOnce) throws InterruptedException {
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
        interrupter.shutdownNow();
        return Driver.fields(
                "granted", granted.get(), "cancelled", cancelled.get(), "refused", refused.get(), "failed", failed);
    }

    /** Interrupts one attempt, and nothing after it. */
    private static final class Target {
        private final Thread thread = Thread.currentThread();
        private boolean isOver;

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
    }

    private void attempt() {
        ThreadLocalRandom dice = ThreadLocalRandom.current();
        ServerLock lock = lockOf.apply(keys.get(dice.nextInt(keys.size())));
        double after = within * Math.pow(dice.nextDouble(), 3);
        if (dice.nextInt(4) == 0) {
            after = Math.floor(after / 5) * 5;
        }
        Target target = new Target();
        interrupter.schedule(target::interrupt, (long) (after * 1e6), TimeUnit.NANOSECONDS);
        AtomicInteger became = granted;
        try {
            ServerLock.Task<RuntimeException> nothing = held -> {};
            calls.run(lock, nothing);
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
