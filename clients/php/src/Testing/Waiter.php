<?php

declare(strict_types=1);

namespace Serverlock\Testing;

/**
 * An attempt that blocks, and what it gets.
 *
 * @internal
 */
final class Waiter
{
    public ?Grant $grant = null;
    public ?string $result = null;

    public function __construct(public readonly Ask $ask)
    {
    }
}
