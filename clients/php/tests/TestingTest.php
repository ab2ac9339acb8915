<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockDeniedException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Locks;
use Serverlock\Outcome;
use Serverlock\Testing\Server;

/** The in-memory server, as an application's tests use it. */
final class TestingTest extends TestCase
{
    private Server $server;
    private Locks $locks;
    private Locks $others;
    /** @var list<string> */
    private array $lost = [];

    protected function setUp(): void
    {
        $this->server = new Server();
        $this->locks = $this->server->locks(new Hooks(lost: function (string $key): void {
            $this->lost[] = $key;
        }));
        $this->others = $this->server->locks();
    }

    /**
     * @param class-string<LockException> $type
     * @param \Closure(): mixed $act
     */
    private static function fails(string $type, \Closure $act): LockException
    {
        try {
            $act();
        } catch (LockException $error) {
            self::assertInstanceOf($type, $error);
            return $error;
        }
        self::fail("no $type");
    }

    public function testManagersOfOneServerExcludeEachOther(): void
    {
        $first = $this->locks->lock('report', 30.0)->run(function (Held $held): int {
            self::fails(LockMisuseException::class, fn () => $this->locks->lock('report', 30.0)->acquire());
            self::fails(LockRefusedException::class, fn () => $this->others->lock('report', 30.0)->acquire());
            self::assertTrue((new Server())->locks()->lock('report', 30.0)->acquire()->isHeld());
            return $held->token;
        });
        self::assertGreaterThan($first, $this->others->lock('report', 30.0)->acquire()->token);
    }

    public function testAWaitMovesTheClockToItsEnd(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        self::fails(LockTimeoutException::class, fn () => $this->others->lock('report', 30.0, wait: 5.0)->acquire());
        self::assertEqualsWithDelta(22.0, $held->left(), 0.001);
    }

    public function testAWaitEndsWhenTheLockExpires(): void
    {
        $held = $this->locks->lock('report', 10.0)->acquire();
        $next = $this->others->lock('report', 30.0, wait: 60.0, details: true)->acquire();
        self::assertSame($held->token, $next->predecessor?->token);
        self::assertEqualsWithDelta(11.0, $this->server->clock->now(), 0.001);
        self::assertFalse($held->isHeld());
        self::assertSame(['"report"'], $this->lost);
    }

    public function testAWaitEndsWhenAPlannedActionReleasesTheLock(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        $this->server->clock->after(3.0, function () use ($held): void {
            $held->release();
            self::assertSame('held', $this->server->call(['LOCK.INFO', 'report'])[1], 'by the waiter');
            self::fails(LockRefusedException::class, fn () => $this->locks->lock('report', 30.0)->acquire());
        });
        self::assertTrue($this->others->lock('report', 30.0, wait: 60.0)->acquire()->isHeld());
        self::assertEqualsWithDelta(3.0, $this->server->clock->now(), 0.001);
    }

    public function testActionsAreCarriedOutInChronologicalOrder(): void
    {
        $done = [];
        foreach ([5, 3, 4, 9] as $seconds) {
            $this->server->clock->after($seconds, function () use ($seconds, &$done): void {
                $done[] = $seconds;
            });
        }
        $this->server->clock->advance(6.0);
        self::assertSame([3, 4, 5], $done);
    }

    public function testTimePassesOnlyWhenTheTestSaysSo(): void
    {
        $held = $this->locks->lock('report', 30.0, maxHold: 40.0)->acquire();
        self::assertSame(27.0, $held->left());
        foreach ([11.0, 11.0] as $seconds) {
            $this->server->clock->advance($seconds);
            $held->check();
        }
        self::assertSame(27.0, $held->left());
        $this->server->clock->advance(27.0);
        self::fails(LockLostException::class, $held->check(...));
        self::assertFalse($held->release());
        self::fails(LockBadArgumentException::class, fn () => $this->server->clock->advance(-1.0));
    }

    public function testSumsOfTimesAreExact(): void
    {
        $this->locks->lock('report', 1.0)->acquire();
        for ($turn = 1; $turn < 20; ++$turn) {
            $this->server->clock->advance(0.1);
        }
        self::fails(LockRefusedException::class, fn () => $this->others->lock('report', 30.0)->acquire());
        $this->server->clock->advance(0.1); // the lease and the margin
        self::assertTrue($this->others->lock('report', 30.0)->acquire()->isHeld());
    }

    public function testSharedAndLimitedLocksHaveSeveralHolders(): void
    {
        $readers = [$this->locks->shared('page', 30.0)->acquire(), $this->others->shared('page', 30.0)->acquire()];
        self::fails(LockRefusedException::class, fn () => $this->locks->lock('page', 30.0)->acquire());
        array_map(static fn (Held $held): bool => $held->release(), $readers);
        $writer = $this->locks->lock('page', 30.0)->acquire();
        self::fails(LockRefusedException::class, fn () => $this->others->shared('page', 30.0)->acquire());
        self::assertTrue($writer->release());
        $slots = [$this->locks->limit('pool', 2, 30.0)->acquire(), $this->others->limit('pool', 2, 30.0)->acquire()];
        self::fails(LockRefusedException::class, fn () => $this->locks->limit('pool', 2, 30.0)->acquire());
        self::assertTrue($slots[0]->release());
        self::assertTrue($this->locks->limit('pool', 2, 30.0)->acquire()->isHeld());
    }

    public function testSeveralKeysAreLockedTogetherOrNotAtAll(): void
    {
        $held = $this->locks->lock('b', 10.0)->acquire();
        self::fails(LockRefusedException::class, fn () => $this->others->allOf(['a', 'b'], 30.0)->acquire());
        $all = $this->others->allOf(['a', 'b'], 30.0, wait: 60.0)->acquire();
        self::assertFalse($held->isHeld());
        self::assertGreaterThan(0.0, $all->verify());
        self::fails(LockRefusedException::class, fn () => $this->locks->lock('a', 30.0)->acquire());
        self::assertTrue($all->release());
        self::assertTrue($this->locks->lock('a', 30.0)->acquire()->isHeld());
    }

    public function testAHolderFindsOutThatItsLockExpiredWhenItRenews(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        self::fails(LockRefusedException::class, fn () => $this->others->recover('report', 30.0)->acquire());
        $this->server->expire('report');
        self::assertTrue($held->isHeld());
        $next = $this->others->recover('report', 30.0)->acquire();
        self::assertSame($held->token, $next->predecessor?->token);
        $this->server->clock->advance(10.0);
        self::fails(LockLostException::class, $held->check(...));
        self::assertFalse($held->release());
        self::assertTrue($next->release());
        $error = self::fails(LockRefusedException::class, fn () => $this->others->recover('report', 30.0)->acquire());
        self::assertStringContainsString('is free', $error->getMessage());
    }

    public function testALostHoldIsReportedAtOnceAndItsKeysAreFree(): void
    {
        $held = $this->locks->allOf(['a', 'b'], 30.0)->acquire();
        $this->server->lose($held);
        self::assertSame(['"a", "b"'], $this->lost);
        self::fails(LockLostException::class, $held->check(...));
        self::assertTrue($this->others->allOf(['a', 'b'], 30.0)->acquire()->isHeld());
    }

    public function testARefusedKeyFailsAtOnceUntilItIsAllowed(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        $waits = fn (): Held => $this->others->lock('report', 30.0, wait: 60.0)->acquire();
        $this->server->clock->after(1.0, fn () => $this->server->refuse('report'));
        self::fails(LockUnavailableException::class, $waits); // it waits when the key is refused
        self::assertEqualsWithDelta(1.0, $this->server->clock->now(), 0.001);
        self::fails(LockUnavailableException::class, $waits);
        self::fails(LockUnavailableException::class, $held->extend(...));
        self::assertTrue($held->isHeld());
        $this->server->refuse('report', 'denied');
        self::fails(LockDeniedException::class, $waits);
        self::fails(LockBadArgumentException::class, fn () => $this->server->refuse('report', 'lost'));
        self::assertTrue($held->release());
        $this->server->allow('report');
        self::assertTrue($waits()->isHeld());
    }

    public function testATickRunsOnce(): void
    {
        $run = fn (Locks $locks): Outcome => $locks->once('job', 60.0)->run(static fn () => 1)->outcome;
        self::assertSame([Outcome::Ran, Outcome::Elsewhere], [$run($this->locks), $run($this->others)]);
        $this->server->clock->advance(60.0);
        self::assertSame(Outcome::Ran, $run($this->others));
    }

    public function testALeaderIsElectedOnceTheLeaseOfTheLastOneEnds(): void
    {
        $this->others->lock('chief', 30.0)->acquire();
        $leader = $this->locks->leader('chief', 10.0);
        $leader->run(function (Held $held) use ($leader): void {
            self::assertSame($held->token, $leader->look()->token);
            $leader->stop();
        });
        self::assertGreaterThanOrEqual(31.0, $this->server->clock->now());
    }

    public function testASessionEndsOneSecondAfterItsLastReference(): void
    {
        $held = $this->locks->lock('report', 600.0, session: true)->acquire();
        unset($held);
        self::fails(LockRefusedException::class, fn () => $this->others->lock('report', 30.0)->acquire());
        $this->server->clock->advance(1.0);
        self::assertTrue($this->others->lock('report', 30.0, session: true)->acquire()->release());
    }

    public function testTheReadmesExampleRuns(): void
    {
        $page = (string) file_get_contents(dirname(__DIR__) . '/README.md');
        self::assertSame(1, preg_match('/^```php\n(\$server = .*?)^```$/ms', $page, $found));
        $this->expectOutputString("got it after 20 s\nheld\n");
        eval($found[1]);
    }

    public function testWhatItDoesNotHaveIsUnavailable(): void
    {
        self::fails(LockUnavailableException::class, fn () => $this->locks->lock('r', 30.0, replicas: 1)->acquire());
        self::fails(LockUnavailableException::class, fn () => $this->locks->lock('r', 30.0, fsync: true)->acquire());
        $held = $this->locks->lock('r', 30.0)->acquire();
        self::fails(LockUnavailableException::class, fn () => $held->fenced('SET', 'result', '42'));
        $this->server->expire('r');
        self::fails(LockLostException::class, fn () => $held->fenced('SET', 'result', '42'));
    }
}
