<?php

declare(strict_types=1);

namespace Serverlock\Adapter;

use Illuminate\Cache\Lock;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Held;
use Serverlock\Leadership;
use Serverlock\Lock as Description;
use Serverlock\Locks;

/**
 * A Laravel lock. block() waits in the server's queue; owner() is the lock's OWNER, which others see, and which lets
 * another process restore the lock.
 */
final class LaravelLock extends Lock implements Refreshable
{
    /** The lease of a lock that never expires on its own: ten years. */
    private const FOREVER = 315_360_000.0;

    private ?Held $held = null;

    /**
     * @param string $name
     * @param int $seconds 0: until it is released
     * @param string|null $owner
     * @param bool $session the lock ends one second after this process; needs the module
     */
    public function __construct(
        private readonly Locks $locks,
        $name,
        $seconds,
        $owner = null,
        private readonly bool $session = false,
    ) {
        parent::__construct($name, $seconds, $owner);
    }

    public function acquire(): bool
    {
        try {
            $this->held = $this->described()->acquire();
            return true;
        } catch (LockRefusedException) {
            return false;
        }
    }

    /**
     * Waits in the server's queue; Laravel's other locks poll.
     *
     * @param int $seconds
     * @param callable|null $callback
     * @return mixed
     * @throws LockTimeoutException
     */
    public function block($seconds, $callback = null)
    {
        try {
            $this->held = $this->described((float) $seconds)->acquire();
        } catch (LockRefusedException $error) {
            throw new LockTimeoutException($error->getMessage(), 0, $error);
        }
        if (!is_callable($callback)) {
            return true;
        }
        try {
            return $callback();
        } finally {
            $this->release();
        }
    }

    /**
     * Sets a new lease, counted from now. Returns false if this owner no longer has the lock.
     *
     * @param int|null $seconds null: the lock's own; 0: until it is released
     */
    public function refresh($seconds = null): bool
    {
        try {
            $held = $this->held ?? $this->restored();
            $held?->extend($this->lease((int) ($seconds ?? $this->seconds)));
            return $held !== null;
        } catch (LockLostException) {
            return false;
        }
    }

    public function release(): bool
    {
        [$held, $this->held] = [$this->held, null];
        if ($held !== null) {
            return $held->release();
        }
        try {
            return $this->restored()?->release() ?? false;
        } catch (LockLostException) {
            return false;
        }
    }

    public function forceRelease(): void
    {
        $this->held = null;
        try {
            $this->resumed($this->look()->token)?->release();
        } catch (LockLostException) {
            // Somebody else has released it.
        }
    }

    /** The owner on the server; null if nobody has the lock. */
    protected function getCurrentOwner(): ?string
    {
        return $this->look()->owner;
    }

    private function look(): Leadership
    {
        return $this->locks->leader($this->name, 1.0)->look();
    }

    /** The lock that this owner has, perhaps in another process. */
    private function restored(): ?Held
    {
        $now = $this->look();
        return $now->owner === $this->owner ? $this->resumed($now->token) : null;
    }

    private function resumed(?int $token): ?Held
    {
        $lock = $this->locks->lock($this->name, $this->lease($this->seconds), owner: $this->owner);
        return $token === null ? null : $lock->resume($token);
    }

    private function described(float $wait = 0.0): Description
    {
        $lease = $this->lease($this->seconds);
        return $this->locks->lock($this->name, $lease, $wait, $this->owner, session: $this->session);
    }

    private function lease(int $seconds): float
    {
        return $seconds > 0 ? (float) $seconds : self::FOREVER;
    }
}
