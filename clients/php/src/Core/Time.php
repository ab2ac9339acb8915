<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The clock by which leases, waits and pauses are measured. Times are seconds.
 *
 * @internal
 */
interface Time
{
    public function now(): float;

    public function pause(float $seconds): void;
}
