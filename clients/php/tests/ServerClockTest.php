<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Engine;
use Serverlock\Core\Estimate;
use Serverlock\Core\Hold;
use Serverlock\Core\ReplyError;
use Serverlock\Core\Request;
use Serverlock\Core\ServerClock;

/** The estimate of the server's clock, and its margin. */
final class ServerClockTest extends TestCase
{
    private TickServer $server;
    private Engine $engine;
    private ServerClock $clock;

    protected function setUp(): void
    {
        $this->server = new TickServer();
        $this->engine = new Engine($this->server, 5.0, true, null, null, mayWarn: false);
        $this->clock = $this->engine->serverClock;
    }

    private function assertAsked(int $times): void
    {
        self::assertSame($times, $this->server->count('TIME'));
    }

    public function testTheOffsetIsTakenAtTheMidpointOfTheCall(): void
    {
        $this->server->takes['TIME'] = [0.4];
        $found = $this->clock->read('a');
        self::assertEqualsWithDelta($this->server->ahead, $found->offset, 0.05);
        self::assertEqualsWithDelta(0.2, $found->doubt, 0.05);
    }

    public function testRepliesToTimeAreTextOrNumbers(): void
    {
        foreach ([['1800000000', '250000'], [1_800_000_000, 250_000]] as $reply) {
            $found = Estimate::of($reply, 10.0, 10.5);
            self::assertEqualsWithDelta(1_800_000_000.25 - 10.25, $found->offset, 1e-5);
            self::assertSame([0.25, 10.5, true], [$found->doubt, $found->asked, $found->isGood()]);
        }
        foreach ([null, 'OK', [], ['1'], ['x', 'y']] as $reply) {
            try {
                Estimate::of($reply, 0.0, 0.0);
                self::fail('it was read');
            } catch (ReplyError $error) {
                self::assertStringContainsString('TIME', $error->getMessage());
            }
        }
    }

    public function testTheTimeIsRequestedAtMostOnceAMinute(): void
    {
        $this->clock->read('a');
        $this->clock->read('b');
        MovedClock::by(monotonic: 55.0);
        $this->clock->read('a');
        $this->assertAsked(1);
        MovedClock::by(monotonic: 6.0);
        $this->server->ahead += 3.0; // somebody has set its clock
        self::assertEqualsWithDelta($this->server->ahead, $this->clock->read('a')->offset, 0.1);
        $this->assertAsked(2);
    }

    public function testTheTimeIsRequestedAgainAfterASlowReply(): void
    {
        $this->server->takes['TIME'] = [0.51];
        $found = $this->clock->read('a');
        self::assertTrue($found->isGood());
        self::assertSame($found, $this->clock->read('a'));
        $this->assertAsked(2);
    }

    public function testAnEstimateFromSlowRepliesIsUsedOnce(): void
    {
        $this->server->takes['TIME'] = [0.8, 1.2];
        self::assertEqualsWithDelta(0.4, $this->clock->read('a')->doubt, 0.05);
        $this->clock->read('a');
        $this->clock->read('a');
        $this->assertAsked(3);
        MovedClock::by(monotonic: 61.0);
        $this->server->takes['TIME'] = [0.8];
        $this->server->replies['TIME'] = [['1800000000', '0'], new ConnectionLost('a')];
        self::assertEqualsWithDelta(0.4, $this->clock->read('a')->doubt, 0.05);
    }

    public function testEachServerOfAClusterHasItsOwnClock(): void
    {
        $this->server->isCluster = true;
        foreach (['a', 'b', 'a'] as $key) {
            $this->clock->read($key);
        }
        $this->assertAsked(2);
        MovedClock::by(monotonic: 61.0);
        $this->clock->read('a');
        self::assertCount(1, (fn (): array => $this->known)->call($this->clock));
    }

    public function testTheTimeIsRequestedAgainAfterALostReply(): void
    {
        $lost = new ConnectionLost('lost');
        $this->server->replies['TIME'] = [$lost];
        $this->clock->read('a');
        $this->assertAsked(2);
        $loading = new ReplyError('LOADING soon');
        foreach ([[$lost, $lost], [$loading, $loading], [new ReplyError('NOPERM no')]] as $replies) {
            MovedClock::by(monotonic: 61.0);
            $this->server->sent = [];
            $this->server->replies['TIME'] = $replies;
            try {
                $this->clock->read('a');
                self::fail('it was read');
            } catch (ReplyError | ConnectionLost $error) {
                self::assertSame(end($replies), $error);
            }
            $this->assertAsked(count($replies));
        }
    }

    private function hold(): Hold
    {
        return $this->engine->acquire(new Request(['a'], 3000.0))->hold;
    }

    public function testTheMarginIsRequestedAtMostOnceAMinute(): void
    {
        $hold = $this->hold();
        $this->server->margin = 7.0;
        self::assertSame(1.0, $this->clock->knownMargin());
        self::assertSame([7.0, 7.0], [$this->clock->marginOf($hold), $this->clock->marginOf($hold)]);
        self::assertSame(1, $this->server->count('LOCK.INFO'));
        MovedClock::by(monotonic: 61.0);
        $this->server->replies['LOCK.INFO'] = [new ReplyError('NOPERM no')]; // the last one stays valid
        self::assertSame([7.0, 7.0], [$this->clock->marginOf($hold), $this->clock->marginOf($hold)]);
        self::assertSame(2, $this->server->count('LOCK.INFO'));
        MovedClock::by(monotonic: 61.0);
        $this->server->replies['LOCK.INFO'] = [new ConnectionLost('lost'), ['state', 'free']];
        self::assertSame([7.0, 1.0], [$this->clock->marginOf($hold), $this->clock->marginOf($hold)]);
        self::assertSame(4, $this->server->count('LOCK.INFO'));
    }

    public function testTheMarginOfTheScriptIsKnown(): void
    {
        $this->server->margin = 7.0;
        $this->server->replies['LOCK.ACQUIRE'] = [new ReplyError("ERR unknown command 'LOCK.ACQUIRE'")];
        self::assertSame(1.0, $this->clock->marginOf($this->hold()));
        self::assertSame(0, $this->server->count('LOCK.INFO'));
    }
}
