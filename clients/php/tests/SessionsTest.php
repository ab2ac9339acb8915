<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\Engine;
use Serverlock\Exception\LockDeadlockException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Lock;
use Serverlock\Locks;
use Serverlock\Wire\Slot;

/** Session locks, which share a connection: what ends an attempt does not end the other locks. */
final class SessionsTest extends ServerTestCase
{
    private Server $server;
    private \Redis $redis;
    /** @var list<\Closure(): mixed> what the next signals do */
    private array $onSignal = [];
    /** @var resource|null */
    private $sender = null;

    protected function setUp(): void
    {
        $this->server = $this->server();
        $this->redis = $this->server->connect();
        pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, fn (): mixed => (array_shift($this->onSignal) ?? static fn () => null)());
    }

    protected function tearDown(): void
    {
        if ($this->sender !== null) {
            proc_terminate($this->sender, SIGKILL);
            proc_close($this->sender);
            $this->sender = null;
        }
        pcntl_signal(SIGUSR1, SIG_DFL);
        pcntl_async_signals(false);
        $this->server->resume();
        parent::tearDown();
    }

    /** From now on, a signal arrives every 20 to 50 ms, once somebody is waiting for the key. */
    private function sendSignals(string $key): void
    {
        $send = '$redis = new Redis();
            $redis->connect("127.0.0.1", (int) $argv[2], 5);
            while (posix_kill((int) $argv[1], 0)) {
                usleep(random_int(20_000, 50_000));
                $info = $redis->rawCommand("LOCK.INFO", $argv[3]);
                $info[array_search("waiters", $info) + 1] === 0 || posix_kill((int) $argv[1], SIGUSR1);
            }';
        $words = [PHP_BINARY, '-r', $send, (string) getmypid(), (string) $this->server->port, $key];
        $sender = proc_open($words, [], $pipes);
        self::assertNotFalse($sender);
        $this->sender = $sender;
    }

    private function session(string $key): mixed
    {
        return $this->server->info($key)['session'];
    }

    private static function sessionsOf(Locks $locks): int
    {
        $engine = (fn (): Engine => $this->engine)->call($locks);
        return count($engine->resources->sessions);
    }

    private static function interrupt(): never
    {
        throw new \DomainException('enough');
    }

    private function isGone(mixed $session): bool
    {
        return !in_array((string) $session, array_column($this->redis->client('list'), 'id'), true);
    }

    /** @dataProvider libraries */
    public function testAnInterruptedWaitKeepsTheOtherLocksOfTheSession(string $library): void
    {
        $locks = new Locks($this->server->client($library));
        $token = $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $session = $this->session('a');
        $wanted = $locks->lock('b', 60, session: true, wait: 60);
        $this->sendSignals('b');
        for ($round = 1; $round <= 20; ++$round) {
            $this->onSignal = [self::interrupt(...)];
            self::thrown(\DomainException::class, $wanted->acquire(...));
            self::assertSame(0, $this->server->info('b')['waiters'], "round $round");
            $held->check();
        }
        self::assertSame($session, $this->session('a'));
        $this->redis->rawCommand('LOCK.RELEASE', 'b', $token);
        $isShared = function (Lock $lock) use ($session): bool {
            $got = $lock->acquire();
            $isShared = $this->session('b') === $session;
            self::assertTrue($got->release());
            return $isShared;
        };
        self::until('the session is free again', static fn (): bool => $isShared($wanted));
        self::assertTrue($held->release());
        self::assertSame(0, self::sessionsOf($locks));
    }

    /** @dataProvider libraries */
    public function testOneCallerCannotWaitForItself(string $library): void
    {
        $locks = new Locks($this->server->client($library));
        $kept = $locks->lock('b', 60, session: true)->acquire(); // in a scope, the package would refuse it
        self::thrown(LockDeadlockException::class, $locks->lock('b', 60, session: true, wait: 60)->acquire(...));
        self::assertTrue($kept->release());
    }

    public function testAConnectionIsClosedWithItsLastHold(): void
    {
        $locks = new Locks($this->server->connect());
        $dropped = $locks->lock('a', 60, session: true, reentrant: true)->acquire();
        [$released, $refused] = [$locks->lock('b', 60, session: true)->acquire(), $locks->lock('b', 60, session: true)];
        $session = $this->session('a');
        unset($dropped);
        self::thrown(LockException::class, $refused->acquire(...));
        $released->check();
        self::assertSame($session, $this->session('b'));
        self::assertTrue($released->release());
        self::until('the dropped lock ends', fn (): bool => $this->server->info('a')['state'] !== 'held');
        self::assertTrue($this->isGone($session));
        $last = $locks->lock('c', 60, session: true)->acquire();
        $session = $this->session('c');
        unset($last);
        self::until('its connection is closed', fn (): bool => $this->isGone($session));
        self::assertSame(0, self::sessionsOf($locks));
    }

    public function testTheEndOfASessionIsReportedForEachOfItsLocksAtOnce(): void
    {
        $losses = [];
        $hooks = new Hooks(lost: function (string $key) use (&$losses): void {
            $losses[] = $key;
        });
        $locks = new Locks($this->server->connect(), hooks: $hooks);
        [$a, $b] = [$locks->lock('a', 60, session: true)->acquire(), $locks->lock('b', 60, session: true)->acquire()];
        $this->redis->rawCommand('CLIENT', 'KILL', 'ID', $this->session('a'));
        self::until('it is noticed', static fn (): bool => !$a->isHeld());
        self::assertSame(['"a"', '"b"'], $losses);
        self::assertFalse($b->release());
        self::assertTrue($locks->lock('c', 60, session: true)->acquire()->release());
        self::assertSame(['"a"', '"b"'], $losses);
    }

    public function testTheEndOfASessionDuringAWaitIsReportedAtOnceAndTheWaitContinues(): void
    {
        $losses = [];
        $hooks = new Hooks(lost: function (string $key) use (&$losses): void {
            $losses[] = $key;
        });
        $locks = new Locks($this->server->connect(), hooks: $hooks);
        $token = $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $this->onSignal = [
            fn () => $this->redis->rawCommand('CLIENT', 'KILL', 'ID', $this->session('a')),
            function () use (&$losses, $token): void {
                self::assertSame(['"a"'], $losses);
                $this->redis->rawCommand('LOCK.RELEASE', 'b', $token);
            },
        ];
        $this->sendSignals('b');
        self::assertTrue($locks->lock('b', 60, session: true, wait: 60)->acquire()->release());
        self::assertSame([], $this->onSignal);
        self::assertFalse($held->release());
    }

    public function testASignalHandlerMayUseTheLocksDuringAWait(): void
    {
        $locks = new Locks($this->server->connect());
        $token = $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $released = INF;
        $this->onSignal[] = function () use ($locks, $held, $token, &$released): void {
            $released = hrtime(true);
            $this->redis->rawCommand('LOCK.RELEASE', 'b', $token);
            usleep(20_000); // the reply to the wait arrives
            $held->check();
            $other = $locks->lock('c', 60, session: true)->acquire();
            self::assertNotSame($this->session('a'), $this->session('c'));
            self::assertTrue($other->release());
        };
        $this->sendSignals('b');
        $got = $locks->lock('b', 60, session: true, wait: 60)->acquire();
        self::assertSame([], $this->onSignal);
        self::assertLessThan(5, (hrtime(true) - $released) / 1e9, 'sooner than the time-out of the piece');
        self::assertSame($this->session('a'), $this->session('b'));
        self::assertTrue($got->release() && $held->release());
    }

    public function testASignalHandlerThatClosesTheManagerEndsTheWaitAndLosesTheSession(): void
    {
        $locks = new Locks($this->server->connect());
        $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $this->onSignal[] = $locks->close(...);
        $this->sendSignals('b');
        self::thrown(LockMisuseException::class, $locks->lock('b', 60, session: true, wait: 60)->acquire(...));
        self::assertNotNull($held->hold->lost);
        self::assertSame(0, $this->server->info('b')['waiters']);
    }

    public function testASignalHandlerThatClosesTheManagerEndsAnyWait(): void
    {
        $locks = new Locks($this->server->connect());
        $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $this->onSignal[] = $locks->close(...);
        $this->sendSignals('b');
        self::thrown(LockMisuseException::class, $locks->lock('b', 60, wait: 60)->acquire(...));
        self::assertSame(0, $this->server->info('b')['waiters']);
        self::assertTrue($held->release(), 'its session was not in use');
    }

    /** An interrupted wait whose reply is still to come: the server does not answer. */
    private function heldWithAPendingReply(Locks $locks): Held
    {
        $this->redis->rawCommand('LOCK.ACQUIRE', 'b', 'PX', 600_000);
        $held = $locks->lock('a', 600, session: true)->acquire();
        $this->onSignal[] = function (): never {
            $this->server->pause();
            self::interrupt();
        };
        $this->sendSignals('b');
        self::thrown(\DomainException::class, $locks->lock('b', 60, session: true, wait: 60)->acquire(...));
        self::assertTrue($held->isHeld());
        return $held;
    }

    public function testAManagerThatIsClosedBeforeAReplyIsReadLosesTheSession(): void
    {
        $locks = new Locks($this->server->connect(), timeout: 0.3);
        $held = $this->heldWithAPendingReply($locks);
        $locks->close();
        self::assertNotNull($held->hold->lost);
    }

    public function testAReplyThatDoesNotArriveInTimeEndsTheSession(): void
    {
        $locks = new Locks($this->server->connect(), timeout: 0.3);
        $held = $this->heldWithAPendingReply($locks);
        MovedClock::by(monotonic: 3.0);
        $lost = self::thrown(LockLostException::class, $held->check(...));
        self::assertStringContainsString('the connection of its session has closed', $lost->getMessage());
    }

    public function testAReplyThatArrivesInTimeFreesTheSession(): void
    {
        $locks = new Locks($this->server->connect(), timeout: 5.0);
        $held = $this->heldWithAPendingReply($locks);
        $this->server->resume();
        $session = $this->session('a');
        MovedClock::by(monotonic: 60.0); // it arrived long before the next call
        $held->check();
        self::until('the session is free again', function () use ($locks, $session): bool {
            $other = $locks->lock('c', 60, session: true)->acquire();
            $isShared = $this->session('c') === $session;
            self::assertTrue($other->release());
            return $isShared;
        });
    }

    public function testALockThatReplicasDoNotConfirmLeavesTheOthers(): void
    {
        $locks = new Locks($this->server->connect());
        $held = $locks->lock('a', 60, session: true)->acquire();
        $lock = $locks->lock('b', 60, session: true, replicas: 1, replicasWithin: 0.01);
        self::thrown(LockUnavailableException::class, $lock->acquire(...));
        self::assertSame('free', $this->server->info('b')['state']);
        self::assertTrue($held->release());
    }

    public function testADemotedServerEndsTheSession(): void
    {
        $locks = new Locks($this->server->connect());
        $held = $locks->lock('a', 60, session: true)->acquire();
        $this->redis->rawCommand('REPLICAOF', '127.0.0.1', '1');
        self::assertTrue($held->isHeld());
        $error = self::thrown(LockUnavailableException::class, $locks->lock('b', 60, session: true)->acquire(...));
        self::assertStringContainsString('READONLY', $error->getMessage());
        self::assertFalse($held->isHeld());
    }

    public function testASlotThatMovesLeavesTheOtherLocks(): void
    {
        $server = $this->server(true, '--cluster-enabled', 'yes', '--cluster-require-full-coverage', 'no');
        $redis = $server->connect();
        $redis->rawCommand('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
        $locks = new Locks($server->connect());
        $serves = static fn (): bool => str_contains($redis->rawCommand('CLUSTER', 'INFO'), 'cluster_state:ok');
        self::until('it serves', $serves);
        $held = $locks->lock('a', 60, session: true)->acquire();
        $redis->rawCommand('CLUSTER', 'DELSLOTS', (string) Slot::of('b'));
        $error = self::thrown(LockUnavailableException::class, $locks->lock('b', 60, session: true)->acquire(...));
        self::assertStringContainsString('CLUSTERDOWN', $error->getMessage());
        self::assertTrue($held->release());
    }

    public function testAChildProcessHasSessionsOfItsOwn(): void
    {
        $locks = new Locks($this->server->connect());
        $held = $locks->lock('a', 60, session: true)->acquire();
        $session = $this->session('a');
        $child = pcntl_fork();
        if ($child === 0) {
            try {
                $own = $locks->lock('b', 60, session: true)->acquire();
                $isOwn = $this->session('b') !== $session && $own->release() && !$held->isHeld();
            } catch (\Throwable) {
                $isOwn = false;
            }
            posix_kill((int) getmypid(), $isOwn ? SIGKILL : SIGTERM);
        }
        pcntl_waitpid($child, $status);
        self::assertSame(SIGKILL, pcntl_wtermsig($status));
        $held->check();
        self::assertSame($session, $this->session('a'));
        self::assertTrue($held->release());
    }
}
