<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Engine;
use Serverlock\Core\ReplyError;
use Serverlock\Core\Request;
use Serverlock\Core\Scope;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockDeniedException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockNoServerException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Held;
use Serverlock\HeldOnce;
use Serverlock\Hooks;
use Serverlock\Lock;
use Serverlock\LockOptions;
use Serverlock\Locks;
use Serverlock\Once;
use Serverlock\Outcome;

/** Ticks that run once: what is sent, and when the lease ends. */
final class OnceTest extends TestCase
{
    private const DAY = TickServer::DAY;

    private TickServer $server;
    private Engine $engine;

    protected function setUp(): void
    {
        $this->begin();
    }

    private function begin(float $timeout = 0.05, ?Hooks $hooks = null): void
    {
        $this->server = new TickServer();
        $this->engine = new Engine($this->server, $timeout, true, $hooks, null, mayWarn: false);
    }

    private function job(?float $lease = null, bool $reruns = true, LockOptions ...$options): Once
    {
        $options = $options[0] ?? new LockOptions(details: true);
        return new Once($this->engine, 'job', self::DAY, $lease, $reruns, $options);
    }

    private static function nothing(HeldOnce $held): void
    {
    }

    /** Runs the tick with work that does nothing, unless it is given. */
    private function runs(Once $once, ?callable $work = null): HeldOnce
    {
        $result = $once->run(static function (HeldOnce $held) use ($work): HeldOnce {
            $work === null || $work($held);
            return $held;
        });
        self::assertSame(Outcome::Ran, $result->outcome);
        self::assertNotNull($result->value);
        return $result->value;
    }

    /**
     * @template T of \Throwable
     * @param class-string<T> $type
     * @return T
     */
    private static function thrown(string $type, callable $call): \Throwable
    {
        try {
            $call();
        } catch (\Throwable $error) {
            self::assertInstanceOf($type, $error, (string) $error);
            return $error;
        }
        self::fail("no $type");
    }

    /** A later call to the manager. */
    private function later(float $seconds = 0.0): void
    {
        MovedClock::by(monotonic: $seconds);
        $ends = $this->server->leaseEnds;
        $before = count($this->server->sent);
        $this->server->replies['LOCK.ACQUIRE'] = [null, null];
        self::thrown(LockException::class, fn () => (new Lock($this->engine, new Request(['other'], 1.0)))->acquire());
        $isExtended = in_array('LOCK.EXTEND', array_slice($this->server->commands(), $before), true);
        $isExtended || self::assertSame($ends, $this->server->leaseEnds);
    }

    /** @testWith [0.0]
     *            [1.0]
     *            [7.0]
     */
    public function testATickThatHasRunIsKeptUntilItsWindowEnds(float $margin): void
    {
        $this->server->margin = $margin;
        $held = $this->runs($this->job(), function (HeldOnce $held): void {
            self::assertSame([TickServer::TICK, false], [$held->tick, $held->recovered]);
            self::assertFalse($this->server->isKept());
            $held->check();
        });
        self::assertTrue($this->server->isKept());
        self::assertSame(['TIME', 'LOCK.ACQUIRE', 'LOCK.INFO', 'LOCK.EXTEND'], $this->server->commands());
        $words = $this->server->sent[1];
        self::assertSame([10_000, 'DETAILS'], [$words[3], end($words)]);
        self::assertFalse($held->isHeld());
        $error = self::thrown(LockLostException::class, $held->check(...));
        self::assertStringContainsString('it was released', $error->getMessage());
        self::assertNull($held->hold->lost, 'its end is not a loss');
        self::thrown(LockMisuseException::class, $held->release(...));
    }

    public function testATickThatSomebodyElseRunsHasNoWork(): void
    {
        foreach ([true, false] as $reruns) {
            $this->server->replies['LOCK.ACQUIRE'] = [null];
            $result = $this->job(null, $reruns)->run(static fn () => self::fail('it runs'));
            self::assertSame([Outcome::Elsewhere, null], [$result->outcome, $result->value]);
        }
        self::assertSame(['TIME', 'LOCK.ACQUIRE', 'LOCK.ACQUIRE'], $this->server->commands());
    }

    /**
     * @testWith [500, "recovered"]
     *           [43198000, "recovered"]
     *           [43200000, "ran"]
     *           [null, "ran"]
     */
    public function testAPredecessorThatDiedInThisWindowIsReported(?int $overdue, string $outcome): void
    {
        $this->server->replies['LOCK.ACQUIRE'] = [[7, $overdue, $overdue === null ? null : 3, null]];
        $result = $this->job()->run(static fn (HeldOnce $held): bool => $held->recovered);
        self::assertSame([$outcome, $outcome === 'recovered'], [$result->outcome->value, $result->value]);
        self::assertTrue($this->server->isKept());
    }

    public function testWorkThatFailsLetsAnotherProcessRunTheTick(): void
    {
        foreach ([true, false] as $reruns) {
            $this->begin();
            $error = new \DomainException('work');
            $fails = fn () => $this->job(null, $reruns)->run(static fn () => throw $error);
            self::assertSame($error, self::thrown(\DomainException::class, $fails));
            self::assertSame(['TIME', 'LOCK.ACQUIRE', 'LOCK.INFO', 'LOCK.RELEASE'], $this->server->commands());
            $this->runs($this->job());
        }
    }

    public function testAGeneratorAsWorkIsRefused(): void
    {
        $generator = static function (): \Generator {
            yield 1;
        };
        self::thrown(LockMisuseException::class, fn () => $this->job()->run($generator));
        self::assertSame([], $this->server->sent);
        self::thrown(LockMisuseException::class, fn () => $this->job()->run(static fn () => $generator()));
        self::assertSame([1, 0], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testAskingForTheSameLockWithinTheWorkIsAnError(): void
    {
        $this->runs($this->job(), function (): void {
            $lock = new Lock($this->engine, new Request(['job'], 30.0));
            $reentrant = new Lock($this->engine, new Request(['job'], 30.0, new LockOptions(reentrant: true)));
            $asks = [fn () => $this->job()->run(self::nothing(...)), $lock->acquire(...), $reentrant->acquire(...),
                fn () => $reentrant->run(self::nothing(...))];
            foreach ($asks as $again) {
                self::thrown(LockMisuseException::class, $again);
            }
        });
        self::assertSame([1, 1], [$this->server->count('TIME'), $this->server->count('LOCK.ACQUIRE')]);
        self::assertTrue($this->server->isKept());
        self::assertSame([], (fn (): array => $this->scopes)->call($this->engine));
        $this->runs($this->job());
    }

    public function testWorkMayReleaseItsLock(): void
    {
        $this->runs($this->job(), static fn (HeldOnce $held) => self::assertTrue($held->release()));
        self::assertSame([1, 0], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testALossDuringTheWorkIsLikeThatOfAnyLock(): void
    {
        foreach ([true, false] as $checks) {
            $this->begin();
            $this->server->replies['LOCK.EXTEND'] = [0];
            $work = static function (HeldOnce $held) use ($checks): void {
                MovedClock::by(monotonic: 11.0);
                $checks && $held->check();
            };
            self::thrown(LockLostException::class, fn () => $this->job(30.0)->run($work));
            self::assertSame([0, 1], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
        }
        $this->begin();
        $late = static fn () => MovedClock::by(monotonic: 28.0);
        self::thrown(LockLostException::class, fn () => $this->job(30.0)->run($late));
        self::assertSame([1, 0], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testBadArgumentsAreRefused(): void
    {
        $locks = new Locks(new \Redis());
        $cases = [
            'period is 9.999' => fn () => $locks->once('job', 9.999),
            'period is 0' => fn () => $locks->once('job', 0),
            'period is NAN' => fn () => $locks->once('job', NAN),
            'period is INF' => fn () => $locks->once('job', INF),
            'lease is 5.001' => fn () => $locks->once('job', 10, lease: 5.001),
            'lease is 0' => fn () => $locks->once('job', 10, lease: 0),
            'owner' => fn () => $locks->once('job', 10, owner: ''),
            'maxHold' => fn () => $locks->once('job', 10, maxHold: 0),
        ];
        foreach ($cases as $text => $case) {
            $error = self::thrown(LockBadArgumentException::class, $case);
            self::assertSame('"job"', $error->key);
            self::assertStringContainsString($text, $error->getMessage());
        }
        foreach (['wait', 'session', 'details', 'atLeast', 'reruns'] as $unknown) {
            $error = self::thrown(\Error::class, fn () => $locks->once('job', 10, ...[$unknown => 1]));
            self::assertStringContainsString($unknown, $error->getMessage());
        }
        $locks->once('job', 10, lease: 5, rerun: false, owner: 'a', replicas: 1, fsync: true, maxHold: 3);
    }

    public function testWithoutRerunTheLeaseIsLongFromTheStart(): void
    {
        foreach ([[1.0, 0], [7.0, 1], [0.0, 1]] as [$margin, $corrections]) {
            $this->begin();
            $this->server->margin = $margin;
            $this->runs($this->job(null, false), function (HeldOnce $held): void {
                self::assertTrue($this->server->isKept());
                MovedClock::by(monotonic: 0.8 * 43_200);
                $held->check();
                self::assertTrue($held->isHeld());
            });
            self::assertTrue($this->server->isKept());
            self::assertSame($corrections, $this->server->count('LOCK.EXTEND'));
            self::assertSame(1, $this->server->count('TIME'));
        }
    }

    public function testALongLeaseIsThatOfTheTickOfItsGrant(): void
    {
        $this->server->ahead += 43_199.9;
        $this->server->takes['LOCK.ACQUIRE'] = [0.3]; // the window ends before the reply
        $held = $this->runs($this->job(null, false), static fn (HeldOnce $held) => self::assertTrue($held->isHeld()));
        self::assertSame(TickServer::TICK + 1, $held->tick);
        $this->server->leaseEnds -= self::DAY;
        self::assertTrue($this->server->isKept());
    }

    public function testALongLeaseThatWouldEndAtOnceIsReleased(): void
    {
        $this->server->ahead += 43_199.5; // the margin is longer than what is left
        $runs = fn () => $this->job(null, false)->run(static fn () => self::fail('it runs'));
        self::thrown(LockLostException::class, $runs);
        self::assertSame([1, 0], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testALongLeaseThatTheWorkChangedIsSetAgain(): void
    {
        foreach ([null, 60.0] as $lease) {
            $this->begin();
            $this->runs($this->job(null, false), function (HeldOnce $held) use ($lease): void {
                MovedClock::by(monotonic: 20.0);
                $held->extend($lease);
                self::assertFalse($this->server->isKept());
            });
            self::assertTrue($this->server->isKept());
        }
    }

    /** @testWith [false]
     *            [true]
     */
    public function testTheTimeIsRequestedAgainAfterLongWork(bool $isLost): void
    {
        $held = $this->runs($this->job(self::DAY / 2), function () use ($isLost): void {
            MovedClock::by(monotonic: 601.0);
            $this->server->ahead += 20.0;
            $this->server->replies['TIME'] = $isLost ? [new ConnectionLost('a'), new ConnectionLost('b')] : [];
        });
        self::assertSame($isLost ? 3 : 2, $this->server->count('TIME'));
        $isLost ? $this->server->leaseEnds -= 20.0 : null;
        self::assertTrue($this->server->isKept(), "the lock ends at {$this->server->leaseEnds}");
        self::assertSame(TickServer::TICK, $held->tick);
    }

    public function testTheTimeIsRequestedAgainAfterSlowReplies(): void
    {
        $this->server->takes['TIME'] = [0.8, 0.8];
        $this->runs($this->job());
        self::assertSame(3, $this->server->count('TIME'));
        self::assertTrue($this->server->isKept());
    }

    /** @testWith [1, 2, true]
     *            [2, 3, true]
     *            [9, 3, false]
     */
    public function testASlowExtendIsSentAgainAtMostTwice(int $slow, int $sent, bool $isKept): void
    {
        $this->server->takes['LOCK.EXTEND'] = array_fill(0, $slow, 2.0);
        $this->runs($this->job(3600.0));
        self::assertSame([$sent, $isKept], [$this->server->count('LOCK.EXTEND'), $this->server->isKept()]);
    }

    public function testALostReplyToTheLastExtendIsFollowedByALateCopy(): void
    {
        $this->server->replies['LOCK.EXTEND'] = [new ConnectionLost('lost')];
        $this->runs($this->job());
        self::assertSame(2, $this->server->count('LOCK.EXTEND'));
        self::assertTrue($this->server->isKept());
        $this->later(1.0);
        self::assertSame(2, $this->server->count('LOCK.EXTEND'), 'not yet');
        $this->later(1.1);
        $this->later(10.0);
        self::assertSame(3, $this->server->count('LOCK.EXTEND'));
        self::assertSame(0, $this->server->count('LOCK.RELEASE'));
        self::assertTrue($this->server->isKept());
    }

    public function testALaterCallKeepsTheTickOnceTheServerAnswers(): void
    {
        foreach ([new ReplyError('BUSY a script runs'), new ConnectionLost('down')] as $error) {
            $this->begin();
            $this->server->replies['LOCK.EXTEND'] = array_fill(0, 100, $error);
            $this->runs($this->job(3600.0));
            self::assertFalse($this->server->isKept());
            self::assertGreaterThanOrEqual(2, $this->server->count('LOCK.EXTEND'));
            $this->server->replies['LOCK.EXTEND'] = [$error];
            $this->later(1.1);
            self::assertFalse($this->server->isKept());
            $this->later(1.1);
            self::assertTrue($this->server->isKept());
            self::assertSame(0, $this->server->count('LOCK.RELEASE'));
            $this->server->sent = [];
            $this->later(1.1);
            self::assertSame(['LOCK.ACQUIRE'], $this->server->commands());
        }
    }

    public function testNoLaterCallKeepsATickWhoseWindowHasEnded(): void
    {
        $this->server->replies['LOCK.EXTEND'] = array_fill(0, 100, new ConnectionLost('down'));
        $this->runs($this->job(3600.0));
        $this->server->sent = [];
        $this->later(43_200.0);
        self::assertSame(['LOCK.ACQUIRE'], $this->server->commands());
    }

    public function testTheFirstExtendMayTakeAllOfTheTimeOut(): void
    {
        $this->server->replies['LOCK.EXTEND'] = [new ConnectionLost('no reply in time')];
        $this->server->takes['LOCK.EXTEND'] = [0.1];
        $this->runs($this->job());
        self::assertTrue($this->server->isKept());
    }

    public function testAnErrorThatIsNotRetriedEndsTheCall(): void
    {
        $this->server->replies['LOCK.EXTEND'] = [new ReplyError('GRACE lease is longer than the grace')];
        self::thrown(LockUnavailableException::class, fn () => $this->job()->run(self::nothing(...)));
        self::assertSame([0, 1], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testALockThatIsGoneWhenTheWorkEndsIsLost(): void
    {
        $this->server->replies['LOCK.EXTEND'] = [-1];
        $lost = self::thrown(LockLostException::class, fn () => $this->job()->run(self::nothing(...)));
        self::assertStringContainsString('"job"', $lost->getMessage());
        self::assertSame(0, $this->server->count('LOCK.RELEASE'));
    }

    public function testALockWhoseWindowHasEndedIsReleased(): void
    {
        $this->runs($this->job(self::DAY / 2), function (): void {
            MovedClock::by(monotonic: 601.0);
            $this->server->ahead += self::DAY / 2;
        });
        self::assertSame([1, 0], [$this->server->count('LOCK.RELEASE'), $this->server->count('LOCK.EXTEND')]);
    }

    public function testAClosedManagerKeepsTheTick(): void
    {
        $this->runs($this->job(), fn () => $this->engine->close());
        MovedClock::by(monotonic: 61.0);
        self::assertTrue($this->server->isKept());
        self::assertSame(0, $this->server->count('LOCK.RELEASE'));
        self::thrown(LockMisuseException::class, fn () => $this->job()->run(self::nothing(...)));
        self::assertSame(1, $this->server->count('TIME'));
    }

    public function testALateRenewalCannotShortenTheLease(): void
    {
        $this->server->replies['LOCK.EXTEND'] = [new ConnectionLost('lost')];
        $ended = 0.0;
        $this->runs($this->job(30.0), function (HeldOnce $held) use (&$ended): void {
            MovedClock::by(monotonic: 11.0);
            $held->check();
            MovedClock::by(monotonic: 1.8); // the server may still run the renewal for 0.2 s
            $ended = hrtime(true);
        });
        self::assertGreaterThan(0.1, (hrtime(true) - $ended) / 1e9, 'it waited');
        self::assertSame(3, $this->server->count('LOCK.EXTEND'), 'a renewal, the last EXTEND, and one more');
        self::assertTrue($this->server->isKept());
    }

    public function testHooksSeeTheGrantAndTheRelease(): void
    {
        $seen = [];
        $this->begin(hooks: new Hooks(
            granted: function (string $key) use (&$seen): void {
                $seen[] = "granted $key";
            },
            released: function (string $key, float $held, bool $isHeld) use (&$seen): void {
                $seen[] = "released $key " . json_encode($isHeld);
            },
        ));
        $this->runs($this->job());
        self::assertSame(['granted "job"', 'released "job" true'], $seen);
    }

    public function testErrorsBeforeTheGrantAreThrown(): void
    {
        $lost = new ConnectionLost('lost');
        $this->server->replies['TIME'] = [$lost, $lost];
        self::thrown(LockNoServerException::class, fn () => $this->job()->run(self::nothing(...)));
        $this->server->replies['TIME'] = [new ReplyError('NOPERM no permissions')];
        self::thrown(LockDeniedException::class, fn () => $this->job()->run(self::nothing(...)));
        self::assertSame(0, $this->server->count('LOCK.ACQUIRE'));
        $this->server->replies['LOCK.ACQUIRE'] = [new ReplyError('NOPERM no permissions')];
        self::thrown(LockDeniedException::class, fn () => $this->job()->run(self::nothing(...)));
    }

    public function testALongLeaseThatCannotBeCorrectedIsReleased(): void
    {
        $this->server->margin = 7.0;
        $this->server->replies['LOCK.EXTEND'] = [new ReplyError('GRACE lease is longer than the grace')];
        self::thrown(LockUnavailableException::class, fn () => $this->job(null, false)->run(self::nothing(...)));
        self::assertSame(1, $this->server->count('LOCK.RELEASE'));
    }

    /**
     * @testWith ["TIME", ["TIME"]]
     *           ["LOCK.ACQUIRE", ["TIME", "LOCK.ACQUIRE", "LOCK.INFO", "LOCK.RELEASE"]]
     *           ["LOCK.INFO", ["TIME", "LOCK.ACQUIRE", "LOCK.INFO", "LOCK.RELEASE"]]
     *           ["LOCK.EXTEND", ["TIME", "LOCK.ACQUIRE", "LOCK.INFO", "LOCK.EXTEND"]]
     *           ["work", ["TIME", "LOCK.ACQUIRE", "LOCK.INFO", "LOCK.RELEASE"]]
     * @param list<string> $commands
     */
    public function testASignalThatEndsTheCallerLeavesNothingOrATickThatHasRun(string $during, array $commands): void
    {
        $wasAsync = pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, static fn () => throw new \DomainException('enough'));
        $signal = static fn (): bool => posix_kill((int) getmypid(), SIGUSR1);
        $this->server->before[$during] = $signal;
        try {
            $work = static fn (): bool => $during === 'work' && $signal();
            self::thrown(\DomainException::class, fn () => $this->job()->run($work));
            self::assertTrue(pcntl_async_signals(), 'signals are handled as before');
        } finally {
            pcntl_signal(SIGUSR1, SIG_DFL);
            pcntl_async_signals($wasAsync);
        }
        self::assertSame($commands, $this->server->commands());
        self::assertSame($during === 'LOCK.EXTEND', $this->server->isKept());
        self::assertSame([], (fn (): array => $this->scopes)->call($this->engine));
    }

    public function testASignalBetweenTheWorkAndItsEndKeepsTheTick(): void
    {
        $ends = 0;
        $end = function () use (&$ends): bool {
            return ++$ends > 1 ?: throw new \DomainException('from a signal handler, before anything was sent');
        };
        $acquire = fn (): Held => $this->engine->acquire(new Request(['job'], 30.0));
        $scope = new Scope($this->engine, '"job"');
        self::thrown(\DomainException::class, fn () => $scope->run($acquire, static fn () => 1, $end));
        self::assertSame([2, ['LOCK.ACQUIRE']], [$ends, $this->server->commands()]);
    }

    public function testAChildProcessLeavesItsParentsTickAlone(): void
    {
        $parent = getmypid();
        try {
            $this->job()->run(function (): void {
                $child = pcntl_fork();
                if ($child > 0) {
                    pcntl_waitpid($child, $status);
                    self::assertSame(SIGKILL, pcntl_wtermsig($status), 'the child has lost it, and sent nothing');
                }
            });
        } catch (LockLostException $lost) {
            if (getmypid() !== $parent) {
                $isAlone = $this->server->count('LOCK.EXTEND') + $this->server->count('LOCK.RELEASE') === 0;
                posix_kill((int) getmypid(), $isAlone ? SIGKILL : SIGTERM);
            }
            throw $lost;
        }
        self::assertTrue($this->server->isKept());
    }
}
