<?php

declare(strict_types=1);

namespace Serverlock;

/** The options of every lock. Times are seconds. */
final class LockOptions
{
    /**
     * @param float $wait how long to wait in the queue; 0: not at all; INF: forever
     * @param DefaultOwner|string|null $owner a label that others see, 1 to 128 visible ASCII characters; the default is
     *     `host:pid`, null sends none; it does not affect grants
     * @param bool $session the lock ends one second after its connection closes; the session locks of one Locks share a
     *     connection
     * @param bool $details set the Held's predecessor
     * @param int $replicas how many replicas must confirm the grant, or it is released
     * @param float $replicasWithin how long they may take
     * @param bool $fsync this server, and that many replicas, must have the grant on disk (WAITAOF)
     * @param float $atLeast others cannot get the lock for at least this long, however soon it is released
     * @param float|null $maxHold check() stops renewing the lease after this time; null: never
     * @param bool $reentrant a caller that already holds the lock gets the same Held again; each acquire() then needs a
     *     release()
     */
    public function __construct(
        public readonly float $wait = 0.0,
        public readonly DefaultOwner|string|null $owner = DefaultOwner::HostAndPid,
        public readonly bool $session = false,
        public readonly bool $details = false,
        public readonly int $replicas = 0,
        public readonly float $replicasWithin = 1.0,
        public readonly bool $fsync = false,
        public readonly float $atLeast = 0.0,
        public readonly ?float $maxHold = null,
        public readonly bool $reentrant = false,
    ) {
    }

    /**
     * @internal
     * @param array<self|DefaultOwner|float|string|bool|int|null> $options one LockOptions, or the arguments of
     *     its constructor
     */
    public static function of(array $options): self
    {
        $first = $options[0] ?? null;
        return $first instanceof self && count($options) === 1 ? $first : new self(...$options);
    }
}
