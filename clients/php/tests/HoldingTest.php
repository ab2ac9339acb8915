<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Held;
use Serverlock\HeldOnce;
use Serverlock\Hooks;
use Serverlock\Locks;
use Serverlock\Outcome;

/** Leases, which PHP does not renew in the background as the suite expects. */
final class HoldingTest extends ServerTestCase
{
    /** How many times the server has carried out a command. */
    private static function calls(Server $server, string $command): int
    {
        $ran = (string) $server->connect()->rawCommand('INFO', 'commandstats');
        return preg_match("/cmdstat_$command:calls=(\d+)/", $ran, $calls) ? (int) $calls[1] : 0;
    }

    /** @dataProvider libraries */
    public function testCheckRenewsTheLeaseWhenAThirdOfItHasPassed(string $library): void
    {
        $server = $this->server();
        $held = (new Locks($server->client($library)))->lock('report', 30)->acquire();
        for ($renewals = 1; $renewals <= 4; ++$renewals) {
            $held->check();
            self::assertSame($renewals - 1, self::calls($server, 'lock.extend'));
            MovedClock::by(monotonic: 11.0);
            $held->check();
            self::assertSame($renewals, self::calls($server, 'lock.extend'));
        }
        self::assertSame($held->token, $server->info('report')['token']);
        self::assertTrue($held->release());
    }

    /** @dataProvider libraries */
    public function testWithoutCheckTheLockIsLostBeforeAnybodyElseHasIt(string $library): void
    {
        $server = $this->server();
        $losses = [];
        $hooks = new Hooks(lost: function (string $key, float $held) use (&$losses): void {
            $losses[$key] = $held;
        });
        $held = (new Locks($server->client($library), hooks: $hooks))->lock('report', 100)->acquire();
        self::assertTrue($held->isHeld());
        MovedClock::by(monotonic: 90.0); // a tenth of the lease before its end
        self::assertFalse($held->isHeld());
        foreach ([1, 2] as $_) {
            $lost = self::thrown(LockLostException::class, fn () => $held->check());
            self::assertSame('the lock "report": lost: its lease was not renewed in time', $lost->getMessage());
            self::assertSame('"report"', $lost->key);
        }
        self::assertSame(0.0, $held->left());
        self::assertFalse($held->release());
        self::assertSame(['"report"'], array_keys($losses));
        self::assertGreaterThanOrEqual(90.0, $losses['"report"']);
    }

    /** @dataProvider libraries */
    public function testAShortFaultCostsNothing(string $library): void
    {
        $server = $this->server();
        $held = (new Locks($server->client($library), timeout: 0.3))->lock('report', 100)->acquire();
        MovedClock::by(monotonic: 40.0);
        $server->pause();
        try {
            $held->check();
        } finally {
            $server->resume();
        }
        self::assertLessThan(60, $held->left(), 'it was not renewed');
        MovedClock::by(monotonic: 6.0); // a twentieth of the lease later it is tried again
        self::until('it is renewed', function () use ($held): bool {
            $held->check();
            MovedClock::by(monotonic: 1.0);
            return $held->left() > 60;
        });
        self::assertTrue($held->release());
    }

    /** @dataProvider libraries */
    public function testARenewalGetsNoMoreTimeThanIsLeft(string $library): void
    {
        $server = $this->server();
        $held = (new Locks($server->client($library), timeout: 60))->lock('report', 100)->acquire();
        MovedClock::by(monotonic: 89.0);
        $began = hrtime(true);
        $server->pause();
        try {
            self::thrown(LockLostException::class, function () use ($held): void {
                $held->check();
                MovedClock::by(monotonic: 5.0); // phpredis counts in whole milliseconds
                $held->check();
            });
        } finally {
            $server->resume();
        }
        self::assertLessThan(30, (hrtime(true) - $began) / 1e9, 'less than the time-out of a call');
    }

    /** Runs a daily tick, and returns when its lock ends. If the window may end during the test, it is skipped. */
    private static function kept(Server $server, \Closure $run): float
    {
        $redis = $server->connect();
        $window = (float) vsprintf('%d.%06d', $redis->time());
        $end = (floor($window / 86_400 + 0.5) + 0.5) * 86_400;
        $end - $window > 120 || self::markTestSkipped('the window ends');
        $run();
        return (float) substr((string) $redis->get('job'), 0, 17) - $end;
    }

    /** @dataProvider libraries */
    public function testATickIsKeptAfterItsLeaseWasRenewed(string $library): void
    {
        foreach ([true, false] as $hasModule) {
            $server = $this->server($hasModule);
            $client = $server->client($library);
            $once = (new Locks($client, warnWithoutModule: false))->once('job', 86_400, lease: 3600);
            $elsewhere = (new Locks($server->client($library), warnWithoutModule: false))->once('job', 86_400);
            $late = self::kept($server, function () use ($once, $elsewhere): void {
                $result = $once->run(function (HeldOnce $held) use ($elsewhere): int {
                    $before = $held->left();
                    $held->hold->renewAt = 0.0; // due
                    $held->check();
                    self::assertGreaterThan($before - 1, $held->left());
                    self::assertSame(Outcome::Elsewhere, $elsewhere->run(static fn () => 1)->outcome);
                    return 42;
                });
                self::assertSame([Outcome::Ran, 42], [$result->outcome, $result->value]);
            });
            self::assertSame(Outcome::Elsewhere, $once->run(static fn () => 1)->outcome);
            self::assertEqualsWithDelta(0.35, $late, 0.352);
        }
    }

    /** @dataProvider libraries */
    public function testALaterCallKeepsATickOnceTheServerAnswers(string $library): void
    {
        $server = $this->server();
        $locks = new Locks($server->client($library), timeout: 0.2);
        $once = $locks->once('job', 86_400, lease: 3600);
        $late = self::kept($server, function () use ($once, $server, $locks): void {
            $result = $once->run(static fn () => $server->pause());
            $server->resume();
            self::assertSame(Outcome::Ran, $result->outcome);
            $server->connect()->rawCommand('LOCK.EXTEND', 'job', $server->info('job')['token'], 'PX', 3_600_000);
            usleep(1_100_000);
            $locks->lock('other', 30)->acquire();
        });
        self::assertEqualsWithDelta(0.35, $late, 0.352);
    }

    /** @dataProvider libraries */
    public function testATickWhoseProcessDiedIsRecovered(string $library): void
    {
        $server = $this->server();
        $server->connect()->rawCommand('LOCK.ACQUIRE', 'job', 'PX', 1);
        self::until('it has expired', fn (): bool => $server->info('job')['state'] === 'expired');
        $once = (new Locks($server->client($library)))->once('job', 86_400);
        self::kept($server, function () use ($once): void {
            $result = $once->run(static fn (HeldOnce $held): bool => $held->recovered);
            self::assertSame([Outcome::Recovered, true], [$result->outcome, $result->value]);
        });
    }

    /** @dataProvider libraries */
    public function testALossDuringATickIsLikeThatOfAnyLock(string $library): void
    {
        $server = $this->server();
        $once = (new Locks($server->client($library)))->once('job', 86_400);
        self::thrown(LockLostException::class, fn () => $once->run(fn () => $server->connect()->del('job')));
        self::assertSame(0, $server->connect()->exists('job'));
    }

    public function testMaxHoldEndsTheRenewal(): void
    {
        $server = $this->server();
        $held = (new Locks($server->connect()))->lock('report', 30, maxHold: 40)->acquire();
        foreach ([1, 2, 3, 3] as $renewals) { // after 11, 22, 33, 44 seconds
            MovedClock::by(monotonic: 11.0);
            $held->check();
            self::assertSame($renewals, self::calls($server, 'lock.extend'));
        }
        MovedClock::by(monotonic: 17.0);
        self::thrown(LockLostException::class, fn () => $held->check());
    }

    public function testAtLeastKeepsOthersOutAndALaterCallReleases(): void
    {
        $server = $this->server();
        $locks = new Locks($server->connect());
        self::assertTrue($locks->lock('cron', 300, atLeast: 100)->acquire()->release());
        $locks->lock('another', 30)->acquire();
        self::assertSame('held', $server->info('cron')['state']);
        self::assertLessThanOrEqual(100_000, $server->info('cron')['lease-ms'], 'cut in case no later call comes');
        MovedClock::by(monotonic: 101.0);
        $locks->lock('other', 30)->acquire();
        self::assertSame('free', $server->info('cron')['state']);
    }

    public function testADroppedHoldIsNotReleased(): void
    {
        $server = $this->server();
        $held = (new Locks($server->connect()))->lock('report', 30)->acquire();
        unset($held);
        gc_collect_cycles();
        self::assertSame('held', $server->info('report')['state']);
    }

    public function testAScopeReleasesAndReturnsWhatTheWorkReturned(): void
    {
        $server = $this->server();
        $lock = (new Locks($server->connect()))->lock('report', 30);
        $result = $lock->run(function (Held $held) use ($lock, $server): int {
            self::assertSame($held->token, $server->info('report')['token']);
            self::thrown(LockMisuseException::class, fn () => $lock->acquire());
            return 42;
        });
        self::assertSame(42, $result);
        self::assertSame('free', $server->info('report')['state']);
        $lost = self::thrown(LockLostException::class, fn () => $lock->run(fn () => $server->connect()->del('report')));
        self::assertStringContainsString('ended before it was released', $lost->getMessage());
        $lock->run(fn (Held $held) => self::assertTrue($held->release())); // released only by the work
    }

    public function testATokenTakesALockToAnotherProcess(): void
    {
        $server = $this->server();
        $token = (new Locks($server->connect()))->lock('job', 30)->acquire()->token;
        $lock = (new Locks($server->connect()))->lock('job', 30);
        $held = $lock->resume($token);
        self::assertGreaterThan(20, $held->left());
        $held->extend();
        self::assertTrue($held->release());
        self::thrown(LockLostException::class, fn () => $lock->resume($token));
    }

    public function testAnExceptionFromASignalHandlerEndsAWaitAndLeavesNothing(): void
    {
        $server = $this->server();
        $server->connect()->rawCommand('LOCK.ACQUIRE', 'report', 'PX', 60000);
        $locks = new Locks($server->connect());
        pcntl_async_signals(true);
        pcntl_signal(SIGALRM, fn () => throw new \DomainException('enough'));
        pcntl_alarm(1);
        try {
            self::thrown(\DomainException::class, fn () => $locks->lock('report', 30, wait: 20)->acquire());
        } finally {
            pcntl_signal(SIGALRM, SIG_DFL);
            pcntl_async_signals(false);
        }
        self::assertSame(0, $server->info('report')['waiters']);
        self::assertTrue($locks->lock('other', 30)->acquire()->release());
    }

    public function testAFailingHookDoesNotLoseTheLock(): void
    {
        $server = $this->server();
        $hooks = new Hooks(granted: fn () => throw new \DomainException('no metrics today'));
        self::assertTrue((new Locks($server->connect(), hooks: $hooks))->lock('report', 30)->acquire()->release());
    }

    public function testTheCurrentLeaderIsKnownEvenWithoutTheModule(): void
    {
        foreach ([true, false] as $hasModule) {
            $server = $this->server($hasModule);
            $locks = new Locks($server->connect());
            $leader = $locks->leader('chief', 1);
            self::assertNull($leader->look()->token);
            $held = $locks->lock('chief', 60, owner: 'alice')->acquire();
            self::assertSame([$held->token, 'alice'], [$leader->look()->token, $leader->look()->owner]);
            self::assertSame($held->token, $leader->observe()->current()->token);
            $held->release();
            self::assertNull($leader->look()->token);
            $locks->lock('chief', 0.1)->acquire();
            self::until('it has expired', fn (): bool => $leader->look()->token === null);
            self::assertSame(1, $server->connect()->exists('chief'), 'the key is kept');
        }
    }

    public function testALeaderStepsDownWhenItsWorkReturns(): void
    {
        $server = $this->server();
        $leader = (new Locks($server->connect()))->leader('chief', 0.6);
        $tokens = [];
        $leader->run(function (Held $held) use (&$tokens, $leader, $server): void {
            $tokens[] = $held->token;
            if (count($tokens) === 2) { // the second term ends with a loss
                $server->connect()->del('chief');
                self::until('the loss is noticed', function () use ($held): bool {
                    $held->check();
                    return false;
                });
            }
            count($tokens) < 3 ?: $leader->stop();
        });
        self::assertCount(3, array_unique($tokens));
        self::assertSame('free', $server->info('chief')['state']);
        $server->connect()->rawCommand('LOCK.ACQUIRE', 'chief', 'PX', 60000);
        $leader->run(fn () => self::fail('elected'), fn (): bool => false);
        $lock = (new Locks($server->connect()))->lock('chief', 1);
        self::thrown(LockRefusedException::class, fn () => $lock->acquire());
    }
}
