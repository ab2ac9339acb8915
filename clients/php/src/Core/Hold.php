<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\End;
use Serverlock\Exception\LockLostException;
use Serverlock\Predecessor;

/**
 * One grant as its holder sees it: when its lease ends by the local clock, and whether it was lost.
 *
 * Only the user's Held refers to it for long. Dropping the last Held of a session also closes its connection. A hold
 * belongs to one process: a child of that process holds nothing.
 *
 * @internal
 */
final class Hold
{
    /** How long the server may still run a command after its connection was closed. */
    public const STILL_RUNS = 2.0;

    public readonly int $token;
    public readonly ?Predecessor $predecessor;
    public readonly float $granted;
    public Calls $calls;
    /** Until it is released. */
    public ?Session $session;
    /** The start of the lease. */
    public float $sent;
    public float $lease;
    public float $renewAt;
    public ?LockLostException $lost = null;
    public bool $isReleased = false;
    /** What a release gives to the attempts that wait for a result. */
    public ?string $result = null;
    public ?Watching $watching = null;
    /** How many times it has been acquired but not yet released. */
    public int $entries = 1;
    /** The server has replied that the grant has ended. */
    public bool $isGone = false;
    /** Until then, the server may still run an EXTEND whose reply was lost. */
    public float $unsureUntil = -INF;

    public function __construct(
        public readonly Request $request,
        Grant $grant,
        public readonly float $began,
        public readonly int $pid,
        private readonly Time $clock,
    ) {
        $this->token = $grant->token;
        $this->predecessor = $grant->predecessor;
        $this->calls = $grant->calls;
        $this->granted = $this->clock->now();
        $this->lease = $request->lease;
        $this->renewAt = $grant->sent + $this->lease / 3;
        $this->sent = $grant->sent;
        $this->session = $grant->session;
        $this->session?->keep($this);
    }

    /** Nobody refers to it, so nobody renews or releases its lock. */
    public function __destruct()
    {
        if (!$this->isReleased && $this->isOfThisProcess()) {
            $this->watching?->ended(End::Expired);
        }
    }

    /** A tenth of the lease before its end. */
    public function lostAt(): float
    {
        return $this->sent + $this->lease * 0.9;
    }

    public function mayRenew(): bool
    {
        $maxHold = $this->request->options->maxHold;
        return $maxHold === null || $this->clock->now() < $this->granted + $maxHold;
    }

    /** Call this before an EXTEND is sent. Its reply may be lost, so a lease that ends earlier takes effect at once. */
    public function extending(float $sent, float $lease): void
    {
        if ($sent + $lease < $this->sent + $this->lease) {
            [$this->sent, $this->lease] = [$sent, $lease];
            $this->renewAt = min($this->renewAt, $sent + $lease / 3);
        }
    }

    /** Call this once the server has confirmed a lease that counts from $sent. */
    public function extended(float $sent, float $lease): void
    {
        [$this->sent, $this->lease, $this->renewAt] = [$sent, $lease, $sent + $lease / 3];
    }

    /** Call this if the reply to an EXTEND was lost. */
    public function unsure(): void
    {
        $this->unsureUntil = $this->clock->now() + self::STILL_RUNS;
    }

    public function isUnsure(): bool
    {
        return $this->clock->now() < $this->unsureUntil;
    }

    /** Whether this release belongs to a repeated acquire(), so that the lock stays held. */
    public function leaveAgain(): bool
    {
        if ($this->isReleased || $this->entries <= 1) {
            return false;
        }
        --$this->entries;
        return true;
    }

    public function leaveSession(): void
    {
        [$session, $this->session] = [$this->session, null];
        $session?->drop($this);
    }

    public function isOfThisProcess(): bool
    {
        return $this->pid === getmypid();
    }
}
