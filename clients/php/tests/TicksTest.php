<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Estimate;
use Serverlock\Core\TickRun;
use Serverlock\Core\Ticks;

/** Ticks at the edges of their windows. */
final class TicksTest extends TestCase
{
    /** A tick of each of the periods. */
    private const START = 1_799_971_200.0;
    private const PERIODS = [10.0, 60.0, 3600.0, 86_400.0, 12.5];

    public function testATimeBelongsToTheNearestTick(): void
    {
        $shifts = [[-0.5, 0], [-0.499, 0], [0.0, 0], [0.4, 0], [-0.4, 0], [0.499, 0], [0.5, 1], [-0.501, -1]];
        foreach (self::PERIODS as $period) {
            $tick = (int) (self::START / $period);
            self::assertSame(self::START, $tick * $period);
            foreach ($shifts as [$shift, $meant]) {
                $found = Ticks::at(self::START + $shift * $period, $period);
                self::assertSame($tick + $meant, $found, "$shift periods of $period s");
            }
        }
    }

    public function testHalfwayBelongsToTheLaterTickWhetherItIsOddOrEven(): void
    {
        foreach ([180_000_000, 180_000_001] as $tick) {
            self::assertSame($tick + 1, Ticks::at(Ticks::windowEnds($tick, 10.0), 10.0));
            self::assertSame($tick, Ticks::at(Ticks::windowBegins($tick, 10.0), 10.0));
            self::assertSame($tick, Ticks::at(Ticks::windowEnds($tick, 10.0) - 1e-5, 10.0));
        }
    }

    public function testWindowsFollowEachOther(): void
    {
        foreach (self::PERIODS as $period) {
            self::assertSame(Ticks::windowEnds(7, $period), Ticks::windowBegins(8, $period));
            self::assertSame($period, Ticks::windowEnds(7, $period) - Ticks::windowBegins(7, $period));
        }
    }

    public function testTheOrdinaryEndOfTheLastTickIsNotACrash(): void
    {
        foreach (self::PERIODS as $period) {
            $tick = (int) (self::START / $period);
            foreach ([[-$period, false], [0.0, false], [0.6, false], [1.0, false], [1.01, true]] as [$late, $isCrash]) {
                $found = Ticks::isRecovery(self::START - $period / 2 + $late, $tick, $period);
                self::assertSame($isCrash, $found, "$late s after its beginning");
            }
            self::assertTrue(Ticks::isRecovery(self::START, $tick, $period));
        }
    }

    public function testTheDefaultLeaseLeavesTimeToRunTheTickAgain(): void
    {
        self::assertSame([2.5, 10.0, 10.0], array_map(Ticks::defaultLease(...), [10.0, 40.0, 3600.0]));
    }

    /**
     * @testWith [0.0, 0.0]
     *           [0.1, 0.1]
     *           [0.25, 0.25]
     *           [5.0, 0.25]
     */
    public function testTheLeaseEndsAMarginBeforeHalfwayOnTheLocalClock(float $doubt, float $later): void
    {
        $run = new TickRun(180_000_000, 10.0, new Estimate(1_799_999_000.0, $doubt, 0.0), 1.5, false);
        self::assertEqualsWithDelta(1000 + 5 - 1.5 + $later, $run->leaseEnds(), 1e-5);
    }
}
