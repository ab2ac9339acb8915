<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;

/**
 * Notifications for metrics and traces. A hook's exception goes to the logger.
 */
final class Hooks
{
    /**
     * @param null|\Closure(string, float): mixed $granted the key, and the seconds waited
     * @param null|\Closure(string, float, LockException): mixed $refused the same, and why
     * @param null|\Closure(string, float, LockLostException): mixed $lost the key, the seconds held, and why
     * @param null|\Closure(string, float, bool): mixed $released the key, the seconds held, whether to the end
     * @param null|\Closure(list<string>): ?Watch $began the keys of an attempt, before anything is sent; what it
     *     returns follows this attempt and its lock
     */
    public function __construct(
        public readonly ?\Closure $granted = null,
        public readonly ?\Closure $refused = null,
        public readonly ?\Closure $lost = null,
        public readonly ?\Closure $released = null,
        public readonly ?\Closure $began = null,
    ) {
    }
}
