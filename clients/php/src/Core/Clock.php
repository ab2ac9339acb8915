<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * A clock that is never set.
 *
 * @internal
 */
final class Clock
{
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** Signal handlers of the application run in between, and what they throw ends the pause. */
    public static function pause(float $seconds): void
    {
        if ($seconds > 0) {
            usleep((int) ceil($seconds * 1e6));
        }
    }
}
