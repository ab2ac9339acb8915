<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\Clock;

/** Lets tests move the clocks. */
final class MovedClock
{
    private static float $monotonic = 0.0;
    private static float $wall = 0.0;

    /** Moves them by this many seconds. Passing time moves both. */
    public static function by(float $monotonic = 0.0, ?float $wall = null): void
    {
        self::$monotonic += $monotonic;
        self::$wall += $wall ?? $monotonic;
        Clock::$read ??= static fn (): array => [hrtime(true) / 1e9 + self::$monotonic, microtime(true) + self::$wall];
    }
}
