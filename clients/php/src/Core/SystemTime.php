<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The time of this machine.
 *
 * @internal
 */
final class SystemTime implements Time
{
    public function now(): float
    {
        return Clock::now();
    }

    public function pause(float $seconds): void
    {
        Clock::pause($seconds);
    }
}
