<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Predecessor;

/**
 * A grant on the server, on each of its keys. It keeps others out until $freeAt. Times are ticks of the clock.
 *
 * @internal
 */
final class Grant
{
    public int $leaseEnds = 0;
    public int $freeAt = 0;
    public ?Predecessor $predecessor = null;

    public function __construct(public readonly int $token, public Ask $ask, public readonly int $granted)
    {
    }

    public function lease(int $now, int $lease, int $margin): void
    {
        $this->leaseEnds = max($this->leaseEnds, $now + $lease);
        $this->freeAt = $this->leaseEnds + $margin;
    }

    public function expire(int $leaseEnds, int $freeAt): void
    {
        $this->leaseEnds = min($this->leaseEnds, $leaseEnds);
        $this->freeAt = min($this->freeAt, $freeAt);
    }
}
