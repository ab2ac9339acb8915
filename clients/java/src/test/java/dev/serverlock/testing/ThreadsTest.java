package dev.serverlock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** The clock waits for threads that have something to do, and for no others. */
class ThreadsTest {
    private final Threads threads = new Threads();

    private static Thread start(Runnable work) {
        Thread thread = new Thread(work, "worker");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Computes for a while. */
    private static void compute() {
        for (long end = System.nanoTime() + 50_000_000; System.nanoTime() < end; ) {
            Thread.onSpinWait();
        }
    }

    @Test
    void workThatWasPassedOnIsWaitedForFromThenOn() {
        AtomicBoolean isDone = new AtomicBoolean();
        Runnable work = threads.counted(() -> {
            compute();
            isDone.set(true);
        });
        start(() -> {
            compute();
            work.run();
        });
        threads.settle();
        assertTrue(isDone.get());
    }

    @Test
    void aThreadIsAwakeFromWhenItIsWokenUntilItSleepsAgain() throws Exception {
        AtomicInteger turns = new AtomicInteger();
        CountDownLatch isUp = new CountDownLatch(1);
        Threads.Sleeper[] sleeper = new Threads.Sleeper[1];
        Thread thread = start(threads.counted(() -> {
            try {
                while (true) {
                    sleeper[0] = new Threads.Sleeper();
                    isUp.countDown();
                    threads.sleep(sleeper[0]);
                    compute();
                    turns.incrementAndGet();
                }
            } catch (InterruptedException ended) {
                turns.addAndGet(100);
            }
        }));
        isUp.await();
        for (int turn = 1; turn <= 3; turn++) {
            threads.settle();
            threads.wake(sleeper[0]);
            threads.settle();
            assertEquals(turn, turns.get());
        }
        thread.interrupt();
        thread.join();
        assertEquals(103, turns.get());
    }

    @Test
    void aThreadThatWaitsElsewhereOrHasEndedIsNotWaitedFor() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        AtomicBoolean isOver = new AtomicBoolean();
        Thread waits = start(() -> {
            threads.touch();
            try {
                gate.await();
            } catch (InterruptedException ended) {
                return;
            }
            isOver.set(true);
        });
        Thread ends = start(threads::touch);
        ends.join();
        threads.settle();
        assertFalse(isOver.get());
        gate.countDown();
        waits.join();
    }

    @Test
    void workThatNeverBeginsIsWaitedForOnce() {
        threads.counted(() -> {});
        long began = System.nanoTime();
        threads.settle();
        long once = System.nanoTime() - began;
        threads.settle();
        assertTrue(System.nanoTime() - began < 2 * once, "it was waited for again");
    }
}
