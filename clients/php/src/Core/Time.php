<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The time on which leases, waits and pauses are counted. Times are seconds.
 *
 * @internal
 */
interface Time
{
    public function now(): float;

    public function pause(float $seconds): void;
}
