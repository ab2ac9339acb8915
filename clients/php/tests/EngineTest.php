<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Engine;
use Serverlock\Core\Form;
use Serverlock\Core\Portable;
use Serverlock\Core\Request;
use Serverlock\Core\ReplyError;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockNoServerException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Held;
use Serverlock\Leader;
use Serverlock\Lock;
use Serverlock\LockOptions;

/** The commands that are sent when replies are lost. */
final class EngineTest extends TestCase
{
    private static function engine(ScriptedClient $client, float $timeout = 0.05): Engine
    {
        return new Engine($client, $timeout, true, null, null, mayWarn: false);
    }

    public function testAnAttemptWithoutAWaitIsSentAtMostTwiceAndCancelled(): void
    {
        $client = new ScriptedClient([new ConnectionLost('a'), new ConnectionLost('b'), 1]);
        try {
            self::engine($client)->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockNoServerException $error) {
            self::assertSame('the lock "report": b', $error->getMessage());
        }
        self::assertSame(['LOCK.ACQUIRE', 'LOCK.ACQUIRE', 'LOCK.CANCEL'], $client->commands());
        self::assertSame($client->sent[0], $client->sent[1], 'both have the same ID');
        self::assertSame(['LOCK.CANCEL', 'report', $client->sent[0][5]], $client->sent[2]);
    }

    public function testAFailedCancelIsSentAgainByALaterCall(): void
    {
        $errors = [new ConnectionLost('a'), new ConnectionLost('b'), new ConnectionLost('c')];
        $client = new ScriptedClient([...$errors, 1, 4711, 1]);
        $engine = self::engine($client);
        try {
            $engine->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockNoServerException) {
        }
        $held = $engine->acquire(new Request(['other'], 30.0));
        self::assertSame(4711, $held->token);
        $expected = ['LOCK.ACQUIRE', 'LOCK.ACQUIRE', 'LOCK.CANCEL', 'LOCK.CANCEL', 'LOCK.ACQUIRE'];
        self::assertSame($expected, $client->commands());
        $held->release();
        self::assertCount(6, $client->sent, 'the cancel is not sent again');
    }

    /** @return array<string, array{mixed, string}> the reply to LOCK.INFO, and why the lock is refused */
    public static function states(): array
    {
        return [
            'free' => [['state', 'free'], 'there is nothing to recover: the lock is free'],
            'held' => [['state', 'held', 'token', 7], 'somebody else has it'],
            'denied' => [new ReplyError('NOPERM no permissions'), 'somebody else has it'],
            'lost' => [new ConnectionLost('no reply in time'), 'somebody else has it'],
        ];
    }

    /** @dataProvider states */
    public function testARefusedRecoveryAsksWhetherTheLockIsFree(mixed $info, string $why): void
    {
        $client = new ScriptedClient([null, $info]);
        try {
            self::engine($client)->acquire(new Request(['report'], 30.0, form: Form::Recovery));
            self::fail('granted');
        } catch (LockRefusedException $error) {
            self::assertSame("the lock \"report\": $why", $error->getMessage());
        }
        self::assertSame(['LOCK.RECOVER', 'LOCK.INFO'], $client->commands());
    }

    /** @return array<string, array{string, bool}> the server's reply, and whether a retry may help */
    public static function errors(): array
    {
        $passing = ['LOADING', 'BUSY', 'MISCONF', 'TRYAGAIN', 'CLUSTERDOWN', 'MASTERDOWN', 'READONLY', 'MOVED', 'ASK',
            'UNBLOCKED', 'OOM', 'NOREPLICAS', 'GRACE this', 'BUSYLOCKS lock.max-waiters', 'BUSYLOCKS attempts'];
        $errors = [];
        foreach ([...$passing, 'GRACE lease', 'BUSYLOCKS 64 waits', 'CLOCK'] as $text) {
            $errors[$text] = ["$text says the server", in_array($text, $passing, true)];
        }
        return $errors;
    }

    /** @dataProvider errors */
    public function testATransientErrorIsRetriedUntilTheWaitEnds(string $text, bool $isTransient): void
    {
        $client = new ScriptedClient([new ReplyError($text), new ReplyError($text), new ReplyError($text), 4711]);
        try {
            $held = self::engine($client)->acquire(new Request(['report'], 30.0, new LockOptions(wait: 60.0)));
            self::assertTrue($isTransient);
            self::assertSame(4711, $held->token);
        } catch (LockUnavailableException $error) {
            self::assertFalse($isTransient, (string) $error);
        }
        self::assertSame(array_fill(0, $isTransient ? 4 : 1, 'LOCK.ACQUIRE'), $client->commands());
        self::assertCount(1, array_unique(array_column($client->sent, 5)), 'under one ID');
    }

    /** @dataProvider errors */
    public function testAnErrorWithoutAWaitIsUnavailableAndLeavesNothingToCancel(string $text, bool $isTransient): void
    {
        $client = new ScriptedClient([new ReplyError($text), new ReplyError($text)]);
        try {
            self::engine($client)->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockUnavailableException $error) {
            self::assertStringContainsString($text, $error->getMessage());
        }
        self::assertSame(array_fill(0, $isTransient ? 2 : 1, 'LOCK.ACQUIRE'), $client->commands());
    }

    public function testAWaitThatEndsDuringRetriesTimesOut(): void
    {
        $client = new ScriptedClient(array_fill(0, 1000, new ReplyError('BUSY a script runs')));
        $this->expectException(LockTimeoutException::class);
        $this->expectExceptionMessage('BUSY a script runs');
        self::engine($client)->acquire(new Request(['report'], 30.0, new LockOptions(wait: 0.1)));
    }

    /** @dataProvider errors */
    public function testAReleaseThatGetsATransientErrorIsSentAgainByALaterCall(string $text, bool $isTransient): void
    {
        $client = new ScriptedClient([4711, ...array_fill(0, 20, new ReplyError($text))]);
        $engine = self::engine($client);
        $held = $engine->acquire(new Request(['report'], 30.0));
        try {
            self::assertTrue($held->release());
            self::assertTrue($isTransient);
        } catch (LockUnavailableException) {
            self::assertFalse($isTransient);
            return;
        }
        [$client->replies, $client->sent] = [[new ReplyError($text), 4712, new ReplyError($text)], []];
        MovedClock::by(monotonic: 1.1);
        $engine->acquire(new Request(['other'], 30.0));
        self::assertSame(['LOCK.RELEASE', 'LOCK.ACQUIRE'], $client->commands());
        [$client->replies, $client->sent] = [[1, 4713], []];
        MovedClock::by(monotonic: 1.1);
        $engine->acquire(new Request(['third'], 30.0));
        self::assertSame([['LOCK.RELEASE', 'report', 4711]], array_slice($client->sent, 0, 1));
    }

    public function testADelayedReleaseAndACancelThatGetATransientErrorAreSentAgainToo(): void
    {
        $busy = new ReplyError('BUSY a script runs');
        $client = new ScriptedClient([4711, $busy, $busy]);
        $engine = self::engine($client);
        self::assertTrue($engine->acquire(new Request(['report'], 30.0, new LockOptions(atLeast: 1.0)))->release());
        [$client->replies, $client->sent] = [[new ConnectionLost('a'), new ConnectionLost('b'), $busy], []];
        try {
            $engine->acquire(new Request(['other'], 30.0));
            self::fail('granted');
        } catch (LockNoServerException) {
        }
        [$client->replies, $client->sent] = [[1, 1, 4712], []];
        MovedClock::by(monotonic: 2.2);
        $engine->acquire(new Request(['third'], 30.0));
        self::assertSame(['LOCK.RELEASE', 'LOCK.CANCEL', 'LOCK.ACQUIRE'], $client->commands());
    }

    /**
     * @testWith [[1], true]
     *           [[0], false]
     *           [[-1], false]
     *           [["broken", 0], true]
     *           [["broken", 1], true]
     *           [["broken", -1], false]
     * @param list<int|string> $replies
     */
    public function testAReleaseThatWasSentTwiceMayFindItsOwnWorkDone(array $replies, bool $wasHeld): void
    {
        $client = new ScriptedClient([4711, ...array_map(
            static fn (int|string $reply): mixed => $reply === 'broken' ? new ConnectionLost('lost') : $reply,
            $replies,
        )]);
        $engine = self::engine($client, 1.0);
        self::assertSame($wasHeld, $engine->acquire(new Request(['report'], 30.0))->release());
    }

    public function testAReleaseThatCannotBeSentIsSentByALaterCall(): void
    {
        $client = new ScriptedClient([4711, ...array_fill(0, 20, new ConnectionLost('down'))]);
        $engine = self::engine($client);
        self::assertTrue($engine->acquire(new Request(['report'], 30.0))->release());
        $client->replies = [1, 4712];
        $client->sent = [];
        MovedClock::by(monotonic: 1.1); // not at once, because it has just failed
        $engine->acquire(new Request(['other'], 30.0));
        self::assertSame([['LOCK.RELEASE', 'report', 4711]], array_slice($client->sent, 0, 1));
    }

    public function testASignalHandlerThatThrowsLosesNoDebt(): void
    {
        $client = new ScriptedClient([1, 2, ...array_fill(0, 40, new ConnectionLost('down'))]);
        $engine = self::engine($client);
        $helds = [$engine->acquire(new Request(['a'], 30.0)), $engine->acquire(new Request(['b'], 30.0))];
        array_map(static fn (Held $held): bool => $held->release(), $helds);
        [$client->replies, $client->sent] = [[1, 1], []];
        MovedClock::by(monotonic: 1.1);
        $wasAsync = pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, static fn () => throw new \DomainException('enough'));
        $client->onCall = static fn (): bool => posix_kill((int) getmypid(), SIGUSR1);
        try {
            $engine->acquire(new Request(['c'], 30.0));
            self::fail('no signal came');
        } catch (\DomainException) {
            self::assertSame([['LOCK.RELEASE', 'a', 1], ['LOCK.RELEASE', 'b', 2]], $client->sent);
        } finally {
            pcntl_signal(SIGUSR1, SIG_DFL);
            pcntl_async_signals($wasAsync);
        }
    }

    public function testTheModuleIsProbedForAgainOnlyAfterAWhile(): void
    {
        $unknown = new ReplyError("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ");
        $client = new ScriptedClient([$unknown, 'maxmemory_policy:noeviction', 4711, 4712]);
        $engine = self::engine($client);
        $engine->acquire(new Request(['report'], 30.0));
        $engine->acquire(new Request(['other'], 30.0));
        self::assertSame(['LOCK.ACQUIRE', 'INFO', 'EVAL', 'EVALSHA'], $client->commands());
        $words = [2, 'report', 'report:queue:{report}', 'lock_acquire', 1000, 60000, 'PX', 30000];
        self::assertSame($words, array_slice($client->sent[2], 2, 8));
    }

    /**
     * The replies until the script has been sent once.
     *
     * @return list<mixed>
     */
    private static function withoutModule(): array
    {
        $unknown = new ReplyError("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ");
        return [$unknown, 'maxmemory_policy:noeviction'];
    }

    public function testWhileASlotIsMovingCallsNameOnlyTheLock(): void
    {
        $moves = new ReplyError('TRYAGAIN Multiple keys request during rehashing of slot');
        $client = new ScriptedClient([...self::withoutModule(), $moves, 4711, $moves, 1]);
        $held = self::engine($client)->acquire(new Request(['report'], 30.0));
        self::assertTrue($held->release());
        self::assertSame([2, 1, 2, 1], array_column(array_slice($client->sent, 2), 2));
        $client = new ScriptedClient([...self::withoutModule(), $moves, $moves]);
        $this->expectException(LockUnavailableException::class);
        self::engine($client)->acquire(new Request(['report'], 30.0, kind: ['SHARED']));
    }

    public function testADeniedQueueIsNotUsedForAMinute(): void
    {
        $denied = new ReplyError('NOPERM No permissions to access a key');
        $client = new ScriptedClient([...self::withoutModule(), $denied, 4711, 1, 1]);
        $held = self::engine($client)->acquire(new Request(['report'], 300.0));
        $held->extend();
        MovedClock::by(monotonic: 60.1);
        self::assertTrue($held->release());
        self::assertSame([2, 1, 1, 2], array_column(array_slice($client->sent, 2), 2));
    }

    public function testAnAttemptIsCancelledASecondTimeIfACopyMayStillRun(): void
    {
        $client = new ScriptedClient([...self::withoutModule(), new ConnectionLost('a'), new ConnectionLost('b'), 1]);
        $engine = self::engine($client);
        try {
            $engine->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockNoServerException) {
        }
        [$cancel] = array_slice($client->sent, -1);
        self::assertSame('lock_cancel', $cancel[5]);
        [$client->replies, $client->sent] = [[4711], []];
        $engine->acquire(new Request(['other'], 30.0));
        self::assertCount(1, $client->sent, 'not yet');
        MovedClock::by(monotonic: 2.1);
        [$client->replies, $client->sent] = [[1, 4712], []];
        $engine->acquire(new Request(['third'], 30.0));
        self::assertSame(array_slice($cancel, 2), array_slice($client->sent[0], 2));
    }

    public function testSeveralKeysAreCancelledByAcquiringThemOnceMore(): void
    {
        $lost = [new ConnectionLost('a'), new ConnectionLost('b')];
        $client = new ScriptedClient([...self::withoutModule(), ...$lost, 4711, 2]);
        try {
            self::engine($client)->acquire(new Request(['a', 'b'], 30.0, form: Form::Many));
            self::fail('granted');
        } catch (LockNoServerException) {
        }
        $keys = [4, 'a', 'b', 'a:queue:{a}', 'b:queue:{b}'];
        self::assertSame([...$keys, 'lock_acquire_all', 1000, 60000, 'PX', 1], array_slice($client->sent[4], 2, 10));
        self::assertSame([...$keys, 'lock_release_all', 1000, 60000, 4711], array_slice($client->sent[5], 2));
    }

    public function testAnAttemptThatPollsAsksForTheModuleAgainUnderItsID(): void
    {
        $unknown = new ReplyError("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ");
        $client = new ScriptedClient([$unknown, 'maxmemory_policy:noeviction', null, null, $unknown, null, 4711]);
        $client->onCall = function (array $words) use ($client): void {
            if (in_array(count($client->sent), [4, 6], true)) { // after the second and the third script
                MovedClock::by(monotonic: 5.1);
            }
        };
        $held = self::engine($client)->acquire(new Request(['report'], 30.0, new LockOptions(wait: 60.0)));
        $commands = ['LOCK.ACQUIRE', 'INFO', 'EVAL', 'EVALSHA', 'LOCK.ACQUIRE', 'EVALSHA', 'LOCK.ACQUIRE'];
        self::assertSame($commands, $client->commands());
        $ids = array_map(
            static fn (array $words): mixed => $words[array_search('ID', $words, true) + 1],
            array_values(array_filter($client->sent, static fn (array $words): bool => in_array('ID', $words, true))),
        );
        self::assertCount(1, array_unique($ids));
        self::assertNotInstanceOf(Portable::class, $held->hold->calls);
    }

    public function testAMissingModuleIsReportedOnce(): void
    {
        $unknown = new ReplyError("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ");
        $log = tempnam(sys_get_temp_dir(), 'serverlock-');
        $before = ini_set('error_log', (string) $log);
        try {
            foreach ([true, false] as $warns) {
                $client = new ScriptedClient([$unknown, 'maxmemory_policy:noeviction', 4711, $unknown, 4712]);
                $engine = new Engine($client, 0.05, true, null, null, $warns);
                $engine->acquire(new Request(['report'], 30.0));
                MovedClock::by(monotonic: 5.1);
                $engine->acquire(new Request(['other'], 30.0));
                $logged = (string) file_get_contents((string) $log);
                self::assertSame(1, substr_count($logged, 'the server has no LOCK.*'));
            }
        } finally {
            ini_set('error_log', (string) $before);
            unlink((string) $log);
        }
    }

    public function testAGeneratorIsRefusedAsTheWork(): void
    {
        $client = new ScriptedClient([4711, 1]);
        $lock = new Lock(self::engine($client), new Request(['report'], 30.0));
        $generator = function (): \Generator {
            yield 1;
        };
        foreach ([[$generator, []], [fn (): \Generator => $generator(), ['LOCK.ACQUIRE', 'LOCK.RELEASE']]] as $case) {
            try {
                $lock->run($case[0]);
                self::fail('it ran');
            } catch (LockMisuseException $error) {
                self::assertStringContainsString('generator', $error->getMessage());
            }
            self::assertSame($case[1], $client->commands());
        }
        $this->expectException(LockMisuseException::class);
        (new Leader(self::engine($client), new Request(['report'], 30.0)))->run($generator);
    }

    public function testAScopeAppliesOnlyWhileItsHoldIsHeldAndReleasesOnlyThatHold(): void
    {
        $client = new ScriptedClient([11, 1, 12, 1]);
        $lock = new Lock(self::engine($client), new Request(['report'], 30.0));
        $lock->run(function (Held $held) use ($lock): void {
            self::assertTrue($held->release());
            self::assertTrue($lock->acquire()->release());
        });
        [$client->replies, $client->sent] = [[13, 0, 14], []];
        try {
            $lock->run(function (Held $held) use ($lock): void {
                try {
                    $held->verify(); // the reply is 0
                    self::fail('held');
                } catch (LockLostException) {
                }
                $lock->acquire();
            });
            self::fail('not lost');
        } catch (LockLostException) {
        }
        $commands = ['LOCK.ACQUIRE', 'LOCK.CHECK', 'LOCK.ACQUIRE'];
        self::assertSame($commands, $client->commands(), 'the second is still held');
    }
}
