<?php

declare(strict_types=1);

namespace Serverlock;

/**
 * What Once::run() returns.
 *
 * @template-covariant T
 */
final class OnceResult
{
    /**
     * @internal
     * @param T|null $value what the work returned; null if the tick runs elsewhere
     */
    public function __construct(public readonly Outcome $outcome, public readonly mixed $value = null)
    {
    }
}
