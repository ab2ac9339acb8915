<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Clock;
use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Exception\LockLostException;
use Serverlock\Held;

/** Leases after a suspend, and after a clock was set. */
final class ClockTest extends TestCase
{
    private function held(): Held
    {
        Clock::now();
        $client = new ScriptedClient([4711, 1]);
        return (new Engine($client, 5.0, false, null, null))->acquire(new Request(['report'], 30.0));
    }

    public function testASuspendCountsAlthoughTheMonotonicClockStandsStill(): void
    {
        $held = $this->held();
        MovedClock::by(wall: 20.0);
        self::assertEqualsWithDelta(7.0, $held->left(), 2.0);
        MovedClock::by(wall: 8.0);
        self::assertSame(0.0, $held->left());
        $this->expectException(LockLostException::class);
        $held->check();
    }

    public function testAWallClockThatIsSetBackLengthensNoLease(): void
    {
        $held = $this->held();
        MovedClock::by(wall: -3600.0);
        self::assertEqualsWithDelta(27.0, $held->left(), 2.0);
        MovedClock::by(monotonic: 20.0);
        self::assertEqualsWithDelta(7.0, $held->left(), 2.0);
        MovedClock::by(monotonic: 8.0);
        self::assertSame(0.0, $held->left());
    }

    public function testASuspendAfterTheWallClockWasSetBackCounts(): void
    {
        $held = $this->held();
        MovedClock::by(wall: -3600.0);
        $held->left();
        MovedClock::by(wall: 28.0);
        self::assertSame(0.0, $held->left());
    }

    public function testSmallDifferencesDoNotAddUp(): void
    {
        $began = Clock::now();
        for ($turn = 0; $turn < 10_000; ++$turn) {
            MovedClock::by(wall: $turn % 2 ? 0.015 : -0.015);
            Clock::now();
        }
        self::assertLessThan(10.0, Clock::now() - $began); // if each counted, they would add up to 75 s
    }
}
