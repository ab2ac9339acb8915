<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * Numbers the ticks of a period on the server's clock. Pure: the caller passes the time. Times are seconds since 1970.
 *
 * A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
 * begins and ends half a period before and after the tick.
 *
 * @internal
 */
final class Ticks
{
    public const LEAST_PERIOD = 10.0;
    /**
     * How much later than its window's end a kept lease may end: twice Estimate::MOST_DOUBT, plus the time to reach the
     * server.
     */
    private const SLACK = 1.0;

    /** The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended. */
    public static function at(float $serverNow, float $period): int
    {
        return (int) floor($serverNow / $period + 0.5);
    }

    /** When the tick's window begins. */
    public static function windowBegins(int $tick, float $period): float
    {
        return ($tick - 0.5) * $period;
    }

    /** When the tick's window ends. */
    public static function windowEnds(int $tick, float $period): float
    {
        return ($tick + 0.5) * $period;
    }

    /**
     * Whether a lease that expired then was that of a process that died within this window. The lease of a tick that
     * has run expires when its window ends, which is when the next window begins.
     */
    public static function isRecovery(float $expired, int $tick, float $period): bool
    {
        return $expired > self::windowBegins($tick, $period) + self::SLACK;
    }

    /** Short enough that another process may still run the tick if one dies soon after the tick begins. */
    public static function defaultLease(float $period): float
    {
        return min(10.0, $period / 4);
    }
}
