<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Predecessor;

/**
 * A grant as it arrives.
 *
 * @internal
 */
final class Grant
{
    /**
     * @param float $sent when the request that it answers was sent
     * @param Calls $calls how the lock is extended and released
     * @param Session|null $session the connection that it belongs to
     */
    public function __construct(
        public readonly int $token,
        public float $sent,
        public readonly Calls $calls,
        public readonly ?Predecessor $predecessor = null,
        public ?Session $session = null,
    ) {
    }
}
