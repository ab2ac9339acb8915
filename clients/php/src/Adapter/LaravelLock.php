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
final class LaravelLock extends Lock
{
    /** The lease of a lock that never expires on its own: ten years. */
    private const FOREVER = 315_360_000.0;

    private ?Held $held = null;

    /**
     * @param string $name
     * @param int $seconds 0: until it is released
     * @param string|null $owner
     */
    public function __construct(private readonly Locks $locks, $name, $seconds, $owner = null)
    {
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

    public function release(): bool
    {
        [$held, $this->held] = [$this->held, null];
        if ($held !== null) {
            return $held->release();
        }
        $now = $this->look();
        return $now->owner === $this->owner && $this->releaseToken($now->token);
    }

    public function forceRelease(): void
    {
        $this->held = null;
        $this->releaseToken($this->look()->token);
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

    private function releaseToken(?int $token): bool
    {
        try {
            return $token !== null && $this->described()->resume($token)->release();
        } catch (LockLostException) {
            return false;
        }
    }

    private function described(float $wait = 0.0): Description
    {
        $lease = $this->seconds > 0 ? (float) $this->seconds : self::FOREVER;
        return $this->locks->lock($this->name, $lease, $wait, $this->owner);
    }
}
