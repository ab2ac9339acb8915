<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Broken;
use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Core\Said;
use Serverlock\Exception\LockNoServer;
use Serverlock\Exception\LockUnavailable;

/** What is sent, and how often, when replies are lost. */
final class EngineTest extends TestCase
{
    private static function engine(ScriptedClient $client, float $timeout = 0.05): Engine
    {
        return new Engine($client, $timeout, true, null, null);
    }

    public function testAnAttemptWithoutAWaitIsSentTwiceAtMostAndCancelled(): void
    {
        $client = new ScriptedClient([new Broken('a'), new Broken('b'), 1]);
        try {
            self::engine($client)->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockNoServer $error) {
            self::assertSame('the lock "report": b', $error->getMessage());
        }
        self::assertSame(['LOCK.ACQUIRE', 'LOCK.ACQUIRE', 'LOCK.CANCEL'], $client->commands());
        self::assertSame($client->sent[0], $client->sent[1], 'both have the same ID');
        self::assertSame(['LOCK.CANCEL', 'report', $client->sent[0][5]], $client->sent[2]);
    }

    public function testWhatCannotBeCancelledNowIsCancelledByALaterCall(): void
    {
        $client = new ScriptedClient([new Broken('a'), new Broken('b'), new Broken('c'), 1, 4711, 1]);
        $engine = self::engine($client);
        try {
            $engine->acquire(new Request(['report'], 30.0));
            self::fail('granted');
        } catch (LockNoServer) {
        }
        $held = $engine->acquire(new Request(['other'], 30.0));
        self::assertSame(4711, $held->token);
        $expected = ['LOCK.ACQUIRE', 'LOCK.ACQUIRE', 'LOCK.CANCEL', 'LOCK.CANCEL', 'LOCK.ACQUIRE'];
        self::assertSame($expected, $client->commands());
        $held->release();
        self::assertCount(6, $client->sent, 'and once is enough');
    }

    public function testARefusalLeavesNothingToCancel(): void
    {
        $client = new ScriptedClient([new Said('GRACE the server is too young')]);
        $this->expectException(LockUnavailable::class);
        try {
            self::engine($client)->acquire(new Request(['report'], 30.0));
        } finally {
            self::assertSame(['LOCK.ACQUIRE'], $client->commands());
        }
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
            static fn (int|string $reply): mixed => $reply === 'broken' ? new Broken('lost') : $reply,
            $replies,
        )]);
        $engine = self::engine($client, 1.0);
        self::assertSame($wasHeld, $engine->acquire(new Request(['report'], 30.0))->release());
    }

    public function testAReleaseThatCannotBeSentIsMadeUpForByALaterCall(): void
    {
        $client = new ScriptedClient([4711, ...array_fill(0, 20, new Broken('down'))]);
        $engine = self::engine($client);
        self::assertTrue($engine->acquire(new Request(['report'], 30.0))->release());
        $client->replies = [1, 4712];
        $client->sent = [];
        usleep(1_100_000); // not at once: it has just failed
        $engine->acquire(new Request(['other'], 30.0));
        self::assertSame([['LOCK.RELEASE', 'report', 4711]], array_slice($client->sent, 0, 1));
    }

    public function testTheModuleIsAskedForAgainAfterAWhileOnly(): void
    {
        $unknown = new Said("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ");
        $client = new ScriptedClient([$unknown, 'maxmemory_policy:noeviction', 4711, 4712]);
        $engine = self::engine($client);
        $engine->acquire(new Request(['report'], 30.0));
        $engine->acquire(new Request(['other'], 30.0));
        self::assertSame(['LOCK.ACQUIRE', 'INFO', 'EVAL', 'EVALSHA'], $client->commands());
        self::assertSame([1, 'report', 'lock_acquire', 1000, 60000, 'PX', 30000], array_slice($client->sent[2], 2, 7));
    }
}
