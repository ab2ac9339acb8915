package dev.serverlock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.serverlock.LockLostException;
import dev.serverlock.LockMisuseException;
import dev.serverlock.Locks;
import dev.serverlock.spi.Server;
import dev.serverlock.testing.LockServer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/** The contract of Spring Integration's lock registries, and its own leader election on top of them. */
class LockRegistryTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private final LockServer server = new LockServer();
    private final Locks here = server.locks();
    private final Locks there = server.locks();
    private final RenewableLockRegistry ours = new ServerLockRegistry(here, "jobs:", LEASE);
    private final RenewableLockRegistry theirs = new ServerLockRegistry(there, "jobs:", LEASE);

    @AfterEach
    void close() {
        here.close();
        there.close();
    }

    private void loseIt() throws Exception {
        server.expire("jobs:a");
        there.lock("jobs:a", LEASE).acquire().release();
        server.clock().advance(LEASE); // a renewal finds out
    }

    @Test
    void oneProcessHasALockAtATime() {
        Lock lock = ours.obtain("a");
        lock.lock();
        assertThat(theirs.obtain("a").tryLock()).isFalse();
        assertThat(theirs.obtain("b").tryLock()).isTrue();
        lock.unlock();
        assertThat(theirs.obtain("a").tryLock()).isTrue();
    }

    @Test
    void aThreadLocksAgainAndUnlocksAsOften() throws Exception {
        ours.obtain("a").lock();
        ours.obtain("a").lockInterruptibly();
        assertThat(ours.obtain("a").tryLock()).isTrue();
        assertThat(ours.obtain("a").tryLock(1, TimeUnit.DAYS)).isTrue();
        for (int turn = 0; turn < 3; turn++) {
            ours.obtain("a").unlock();
            assertThat(theirs.obtain("a").tryLock()).isFalse();
        }
        ours.obtain("a").unlock();
        assertThat(theirs.obtain("a").tryLock()).isTrue();
    }

    @Test
    void anotherThreadOfTheProcessWaits() throws Exception {
        ours.obtain("a").lock();
        List<String> order = new CopyOnWriteArrayList<>();
        Thread other = new Thread(() -> {
            ours.obtain("a").lock();
            order.add("second");
            ours.obtain("a").unlock();
        });
        other.start();
        TestServer.until("it waits", () -> server.waiting("jobs:a") == 1);
        order.add("first");
        ours.obtain("a").unlock();
        other.join();
        assertThat(order).containsExactly("first", "second");
    }

    @Test
    void onlyTheThreadThatHasALockUnlocksAndRenewsIt() throws Exception {
        assertThatThrownBy(() -> ours.obtain("a").unlock()).isInstanceOf(IllegalMonitorStateException.class);
        assertThatThrownBy(() -> ours.renewLock("a")).isInstanceOf(IllegalStateException.class);
        ours.obtain("a").lock();
        Thread other = new Thread(() -> {
            assertThatThrownBy(() -> ours.obtain("a").unlock()).isInstanceOf(IllegalMonitorStateException.class);
            assertThatThrownBy(() -> ours.renewLock("a")).isInstanceOf(IllegalStateException.class);
        });
        other.start();
        other.join();
        ours.renewLock("a");
        ours.obtain("a").unlock();
    }

    @Test
    void aHeldLockIsRenewedWithoutRenewLock() {
        ours.obtain("a").lock();
        server.clock().advance(LEASE.multipliedBy(20));
        assertThat(theirs.obtain("a").tryLock()).isFalse();
        ours.obtain("a").unlock();
    }

    @Test
    void aLostLockIsReportedUntilItIsUnlocked() throws Exception {
        Lock lock = ours.obtain("a");
        lock.lock();
        loseIt();
        assertThatThrownBy(lock::lock).isInstanceOf(LockLostException.class);
        assertThatThrownBy(lock::tryLock).isInstanceOf(LockLostException.class);
        assertThatThrownBy(() -> ours.renewLock("a")).isInstanceOf(LockLostException.class);
        assertThatThrownBy(lock::unlock).isInstanceOf(LockLostException.class);
        assertThat(lock.tryLock()).isTrue();
        lock.unlock();
    }

    @Test
    void askingForItsKeyInAnotherWayIsAnErrorAndNotAHang() {
        ours.obtain("a").lock();
        assertThatThrownBy(
                        () -> here.lock("jobs:a", LEASE).waiting(Locks.FOREVER).acquire())
                .isInstanceOf(LockMisuseException.class);
        ours.obtain("a").unlock();
    }

    @Test
    void tasksRunLockedOrTimeOut() throws Exception {
        ours.executeLocked("a", () -> {
            assertThat(theirs.obtain("a").tryLock()).isFalse();
            Thread other =
                    new Thread(() -> assertThatThrownBy(() -> theirs.executeLocked("a", Duration.ofMillis(0), () -> {}))
                            .isInstanceOf(TimeoutException.class));
            other.start();
            other.join();
        });
        assertThat(theirs.<String, RuntimeException>executeLocked("a", () -> "done"))
                .isEqualTo("done");
    }

    @Test
    void badArgumentsAreNamed() {
        assertThatThrownBy(() -> ours.obtain(7)).hasMessage("the key of a lock must be a String, not 7");
        assertThatThrownBy(() -> new ServerLockRegistry(here, "", Duration.ZERO))
                .hasMessageContaining("lease is PT0S");
        assertThatThrownBy(() -> ours.obtain("a").newCondition()).isInstanceOf(UnsupportedOperationException.class);
    }

    @Test
    void thePropertiesSetThePrefixAndTheLease() {
        Contexts.on(1)
                .withBean(Server.class, server::client)
                .withPropertyValues("serverlock.lock-registry.prefix=jobs:", "serverlock.lock-registry.lease=5s")
                .run(context -> {
                    Lock lock = context.getBean(LockRegistry.class).obtain("a");
                    lock.lock();
                    assertThat(theirs.obtain("a").tryLock()).isFalse();
                    server.clock().advance(Duration.ofHours(1));
                    assertThat(theirs.obtain("a").tryLock()).isFalse();
                    lock.unlock();
                });
        Contexts.on(1)
                .withBean(Server.class, server::client)
                .withPropertyValues("serverlock.lock-registry.lease=0s")
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("lease is PT0S"));
    }

    /** Says when it leads. */
    private static final class Candidate extends DefaultCandidate {
        volatile boolean leads;
        volatile int terms;

        Candidate(String id) {
            super(id, "a");
        }

        @Override
        public void onGranted(Context context) {
            terms++;
            leads = true;
        }

        @Override
        public void onRevoked(Context context) {
            leads = false;
        }
    }

    private static LockRegistryLeaderInitiator initiator(LockRegistry registry, Candidate candidate) {
        LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(registry, candidate);
        initiator.setHeartBeatMillis(20);
        initiator.setBusyWaitMillis(20);
        initiator.start();
        return initiator;
    }

    @Test
    void oneInitiatorLeadsAndTheOtherTakesOverAfterAStopOrALoss() throws Exception {
        try (TestServer redis = TestServer.withModule()) {
            redis.call("CONFIG", "SET", "lock.margin-ms", "100");
            Contexts.on(redis.port)
                    .run(first -> Contexts.on(redis.port).run(second -> {
                        Candidate one = new Candidate("one");
                        Candidate two = new Candidate("two");
                        LockRegistryLeaderInitiator leading = initiator(first.getBean(LockRegistry.class), one);
                        TestServer.until("one leads", () -> one.leads);
                        LockRegistryLeaderInitiator following = initiator(second.getBean(LockRegistry.class), two);
                        redis.call("DEL", "a");
                        redis.call("LOCK.ACQUIRE", "a", "PX", "600000");
                        leading.getContext()
                                .yield(); // the initiator itself only asks for its lock again, which finds the loss
                        TestServer.until("one is deposed", () -> !one.leads);
                        assertThat(two.leads).isFalse();
                        redis.call("DEL", "a");
                        TestServer.until("one of them leads", () -> one.leads || two.leads);
                        leading.stop();
                        TestServer.until("two leads", () -> two.leads && !one.leads);
                        following.stop();
                        TestServer.until("nobody leads", () -> !two.leads);
                    }));
        }
    }
}
