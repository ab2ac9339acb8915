<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Locks;
use Serverlock\Testing\Server;

/** One result for many callers: what is sent, what the callers get, and which hooks are called. */
final class SingleFlightTest extends TestCase
{
    private const TOO_LONG = 'ERR result is longer than 65536 bytes, the limit lock.result-max';

    /** @var list<string> the hooks that were called */
    private array $called = [];

    private function hooks(): Hooks
    {
        $note = fn (string $name): \Closure => function () use ($name): void {
            $this->called[] = $name;
        };
        return new Hooks($note('granted'), $note('refused'), $note('lost'), $note('released'));
    }

    private static function locks(ScriptedClient $client, float $timeout = 0.05): Locks
    {
        return new Locks($client, $timeout);
    }

    /**
     * @param class-string<\Throwable> $type
     * @param \Closure(): mixed $act
     */
    private static function fails(string $type, \Closure $act): \Throwable
    {
        try {
            $act();
        } catch (\Throwable $error) {
            self::assertInstanceOf($type, $error, (string) $error);
            return $error;
        }
        self::fail("no $type");
    }

    private static function nobodyComputes(): \Closure
    {
        return static fn () => self::fail('it computes');
    }

    public function testAFreeLockIsReleasedWithTheResult(): void
    {
        $client = new ScriptedClient([7, 1]);
        $value = self::locks($client)->singleFlight('page', 30.0, static function (Held $held): string {
            self::assertSame([7, true], [$held->token, $held->isHeld()]);
            return "42 \0pages\xff";
        }, owner: 'me');
        self::assertSame("42 \0pages\xff", $value);
        [$acquire, $release] = $client->sent;
        self::assertSame(['LOCK.ACQUIRE', 'page', 'PX', 30_000], array_slice($acquire, 0, 4));
        self::assertNotContains('WAIT', $acquire, 'a free lock needs no wait');
        self::assertNotContains('RESULT', $acquire, 'only copies that wait have it');
        self::assertSame(['LOCK.RELEASE', 'page', 7, 'RESULT', $value], $release);
    }

    public function testWithoutTheModuleTheResultIsStoredAndAFreeLockNeedsNoGet(): void
    {
        $client = new ScriptedClient([new ReplyError("ERR unknown command 'LOCK.ACQUIRE'"), '', 7, 'OK', 1]);
        $locks = new Locks($client, warnWithoutModule: false);
        self::assertSame('42', $locks->singleFlight('page', 30.0, static fn (): string => '42'));
        self::assertSame(['LOCK.ACQUIRE', 'INFO', 'EVAL', 'SET', 'EVALSHA'], $client->commands());
        self::assertSame(['SET', 'page:result:{page}', '7 42', 'PX', 30_000], $client->sent[3]);
    }

    public function testAResultThatIsNotStoredStillReleasesTheLock(): void
    {
        $unknown = new ReplyError("ERR unknown command 'LOCK.ACQUIRE'");
        $client = new ScriptedClient([$unknown, '', 7, new ReplyError('NOPERM no'), 1]);
        $locks = new Locks($client, warnWithoutModule: false);
        self::assertSame('42', $locks->singleFlight('page', 30.0, static fn (): string => '42'));
        self::assertSame(['LOCK.ACQUIRE', 'INFO', 'EVAL', 'SET', 'EVALSHA'], $client->commands());
    }

    public function testAResultThatIsTooLongIsNotShared(): void
    {
        $client = new ScriptedClient([7, new ReplyError(self::TOO_LONG), 1]);
        self::assertSame('long', self::locks($client)->singleFlight('page', 30.0, static fn (): string => 'long'));
        self::assertSame(['LOCK.RELEASE', 'page', 7], $client->sent[2]);
    }

    public function testACopyOfTheReleaseHasTheResultToo(): void
    {
        $client = new ScriptedClient([7, new ConnectionLost('gone'), 0]);
        $locks = self::locks($client);
        self::assertSame('42', $locks->singleFlight('page', 30.0, static fn (): string => '42'));
        self::assertSame($client->sent[1], $client->sent[2]);
    }

    /** @return array<string, array{mixed}> */
    public static function badReplies(): array
    {
        return [
            'ended' => [0], 'expired' => [-1],
            'denied' => [new ReplyError('NOPERM no')], 'wrong' => [new ReplyError('ERR wrong')],
        ];
    }

    /** @dataProvider badReplies */
    public function testTheCallerGetsItsValueWhateverTheReply(mixed $reply): void
    {
        $client = new ScriptedClient([7, $reply]);
        self::assertSame('42', self::locks($client)->singleFlight('page', 30.0, static fn (): string => '42'));
        self::assertCount(2, $client->sent);
    }

    /** @return array<string, array{\Closure(): mixed, class-string<\Throwable>}> */
    public static function failures(): array
    {
        return [
            'its own error' => [static fn () => throw new \DomainException('enough'), \DomainException::class],
            'a number' => [static fn (): int => 42, LockBadArgumentException::class],
            'nothing' => [static fn () => null, LockBadArgumentException::class],
        ];
    }

    /**
     * @dataProvider failures
     * @param \Closure(): mixed $compute
     * @param class-string<\Throwable> $type
     */
    public function testAComputationThatFailsGivesNoResult(\Closure $compute, string $type): void
    {
        $client = new ScriptedClient([7, 1]);
        self::fails($type, fn () => self::locks($client)->singleFlight('page', 30.0, $compute));
        self::assertSame(['LOCK.RELEASE', 'page', 7], $client->sent[1]);
    }

    public function testAGeneratorIsRefusedBeforeAnythingIsSent(): void
    {
        $client = new ScriptedClient([]);
        $generate = static function (): \Generator {
            yield '42';
        };
        self::fails(LockMisuseException::class, fn () => self::locks($client)->singleFlight('page', 30.0, $generate));
        self::assertSame([], $client->sent);
    }

    public function testAWaitIsAtLeastAMillisecond(): void
    {
        $client = new ScriptedClient([]);
        foreach ([0.0, -1.0, 0.0001, NAN] as $wait) {
            $ask = fn () => self::locks($client)->singleFlight('page', 30.0, self::nobodyComputes(), wait: $wait);
            $error = self::fails(LockBadArgumentException::class, $ask);
            self::assertMatchesRegularExpression('/^the lock "page": wait is /', $error->getMessage());
        }
        self::assertSame([], $client->sent);
    }

    public function testOneComputesAndAnotherGetsTheSameBytes(): void
    {
        $server = new Server();
        $token = $server->call(['LOCK.ACQUIRE', 'page', 'PX', 30_000, 'ID', '1']);
        foreach (['', "42 \0pages\xff"] as $round => $result) {
            $release = ['LOCK.RELEASE', 'page', $token, 'RESULT', $result];
            $server->clock->after(5.0, static fn () => self::assertSame(1, $server->call($release)));
            $locks = $server->locks($this->hooks());
            self::assertSame($result, $locks->singleFlight('page', 30.0, self::nobodyComputes()));
            self::assertEqualsWithDelta(5.0 * ($round + 1), $server->clock->now(), 0.001);
            self::assertSame([], $this->called, 'an attempt that ends with a result calls no hook');
            $token = $server->call(['LOCK.ACQUIRE', 'page', 'PX', 30_000, 'ID', '2']);
            self::assertIsInt($token, 'nobody holds it');
        }
    }

    public function testTheNextComputesIfTheHolderFails(): void
    {
        $server = new Server();
        $held = $server->locks()->lock('page', 30.0)->acquire();
        $server->clock->after(5.0, $held->release(...));
        $locks = $server->locks($this->hooks());
        self::assertSame('42', $locks->singleFlight('page', 30.0, static fn (): string => '42'));
        self::assertSame(['granted', 'released'], $this->called);
    }

    public function testAWaitEnds(): void
    {
        $server = new Server();
        $server->locks()->lock('page', 300.0)->acquire();
        $locks = $server->locks($this->hooks());
        self::fails(LockTimeoutException::class, fn () => $locks->singleFlight('page', 30.0, self::nobodyComputes()));
        self::assertEqualsWithDelta(60.0, $server->clock->now(), 0.001);
        self::assertSame(['refused'], $this->called);
    }

    public function testAValueDoesNotNeedTheLock(): void
    {
        $server = new Server();
        $locks = $server->locks($this->hooks());
        self::assertSame('42', $locks->singleFlight('page', 30.0, static function () use ($server): string {
            $server->clock->advance(40.0);
            return '42';
        }));
        self::assertSame(['granted', 'lost', 'released'], $this->called);
        self::fails(LockLostException::class, fn () => $locks->singleFlight(
            'page',
            30.0,
            static function (Held $held) use ($server): string {
                $server->lose($held);
                $held->check();
                return 'never';
            },
        ));
    }

    public function testAskingWithinComputeIsMisuse(): void
    {
        $server = new Server();
        $locks = $server->locks();
        $outer = static function () use ($locks): string {
            self::fails(LockMisuseException::class, fn () => $locks->singleFlight('a', 30.0, self::nobodyComputes()));
            self::fails(LockMisuseException::class, fn () => $locks->lock('a', 30.0)->acquire());
            return $locks->singleFlight('b', 30.0, static fn (): string => 'inner') . ' outer';
        };
        self::assertSame('inner outer', $locks->singleFlight('a', 30.0, $outer));
        self::assertSame('again', $locks->singleFlight('a', 30.0, static fn (): string => 'again'));
    }

    public function testTheServerInMemoryLimitsResults(): void
    {
        $server = new Server();
        $server->locks()->singleFlight('page', 30.0, static fn (): string => str_repeat('x', 65_537));
        $token = $server->call(['LOCK.ACQUIRE', 'page', 'PX', 30_000, 'ID', '1']);
        $error = self::fails(
            ReplyError::class,
            fn () => $server->call(['LOCK.RELEASE', 'page', $token, 'RESULT', str_repeat('x', 65_537)]),
        );
        self::assertSame(self::TOO_LONG, $error->getMessage());
        self::assertSame(1, $server->call(['LOCK.RELEASE', 'page', $token, 'RESULT', str_repeat('x', 65_536)]));
    }

    public function testAnAttemptWithoutResultStaysAndGetsTheLock(): void
    {
        $server = new Server();
        $token = $server->call(['LOCK.ACQUIRE', 'page', 'PX', 30_000, 'ID', '1']);
        $server->clock->after(5.0, static fn () => $server->call(['LOCK.RELEASE', 'page', $token, 'RESULT', '42']));
        $held = $server->locks()->lock('page', 30.0, wait: 60.0)->acquire();
        self::assertEqualsWithDelta(5.0, $server->clock->now(), 0.001);
        self::assertTrue($held->release());
    }
}
