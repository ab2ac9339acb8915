<?php

declare(strict_types=1);

namespace Serverlock;

/** What every lock takes besides its key and lease. Times are seconds. */
final class LockOptions
{
    /**
     * @param float $wait how long to wait in the queue; 0: not at all; INF: forever
     * @param string|null $owner a label for people, 1 to 128 visible ASCII characters; it grants nothing
     * @param bool $session the lock ends with a connection of its own, one second after it
     * @param bool $details fill the predecessor of the Held
     * @param int $replicas how many replicas must have the grant, or it is given back
     * @param float $replicasWithin how long they may take
     * @param bool $fsync this server, and as many replicas, must have the grant on disk (WAITAOF)
     * @param float $atLeast the lock is not free for others before that time, however soon it is released
     * @param float|null $maxHold after that time check() no longer renews the lease; null: it always does
     */
    public function __construct(
        public readonly float $wait = 0.0,
        public readonly ?string $owner = null,
        public readonly bool $session = false,
        public readonly bool $details = false,
        public readonly int $replicas = 0,
        public readonly float $replicasWithin = 1.0,
        public readonly bool $fsync = false,
        public readonly float $atLeast = 0.0,
        public readonly ?float $maxHold = null,
    ) {
    }

    /**
     * @internal
     * @param array<self|float|string|bool|int|null> $options one of this class, or the arguments of its constructor
     */
    public static function of(array $options): self
    {
        $first = $options[0] ?? null;
        return $first instanceof self && count($options) === 1 ? $first : new self(...$options);
    }
}
