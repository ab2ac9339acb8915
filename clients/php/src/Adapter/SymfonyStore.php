<?php

declare(strict_types=1);

namespace Serverlock\Adapter;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Held;
use Serverlock\Lock;
use Serverlock\Locks;
use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

/**
 * A store for symfony/lock: `new LockFactory(new SymfonyStore(new Locks($redis)))`.
 *
 * Blocking acquisitions wait in the server's queue. The Key's state contains the lock's token, so a serialized Key
 * takes the lock to another process. Only refresh() renews, as usual in symfony/lock.
 *
 * The server cannot turn a shared lock into an exclusive one, or the reverse, so save() after saveRead() releases the
 * lock and acquires it again. If that fails while others read, the shared lock is reacquired, or lost to a writer that
 * got in between.
 */
final class SymfonyStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    use ExpiringStoreTrait;

    /** @var \WeakMap<Key, Held> */
    private \WeakMap $holds;

    /**
     * @param float $initialTtl how many seconds a lock lasts until its expiration is put off
     * @param float $wait the longest that a blocking acquisition waits
     */
    public function __construct(
        private readonly Locks $locks,
        private readonly float $initialTtl = 300.0,
        private readonly float $wait = INF,
    ) {
        $this->holds = new \WeakMap();
    }

    public function save(Key $key): void
    {
        $this->get($key, false, 0.0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->get($key, false, $this->wait);
    }

    public function saveRead(Key $key): void
    {
        $this->get($key, true, 0.0);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->get($key, true, $this->wait);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        $key->reduceLifetime($ttl);
        $isExtended = $this->extend($key, $ttl);
        $this->checkNotExpired($key); // checked first, because an expired lock is not a conflict
        if (!$isExtended) {
            throw new LockConflictedException();
        }
    }

    public function delete(Key $key): void
    {
        $held = $this->held($key);
        $this->forget($key);
        if ($held !== null) {
            $this->guarded(static fn (): bool => $held->release());
        }
    }

    public function exists(Key $key): bool
    {
        $held = $this->held($key);
        try {
            return $held !== null && $this->guarded(static fn (): float => $held->verify()) > 0;
        } catch (LockConflictedException) {
            return false;
        }
    }

    private function get(Key $key, bool $isShared, float $wait): void
    {
        $key->reduceLifetime($this->initialTtl);
        if ($this->isShared($key) === $isShared && $this->extend($key, $this->initialTtl)) {
            $this->checkNotExpired($key);
            return;
        }
        $held = $this->held($key);
        $wasShared = $held !== null && $this->isShared($key);
        $this->delete($key);
        try {
            $this->acquire($key, $isShared, $wait);
        } catch (LockConflictedException $error) {
            if ($wasShared) {
                $this->acquire($key, true, 0.0);
            }
            throw $error;
        }
        $this->checkNotExpired($key);
    }

    private function acquire(Key $key, bool $isShared, float $wait): void
    {
        $held = $this->guarded(fn (): Held => $this->lock($key, $isShared, $wait)->acquire());
        if ($wait > 0) { // the key's lifetime began before the wait
            $key->resetLifetime();
            $key->reduceLifetime($held->left());
        }
        $this->holds[$key] = $held;
        $key->setState(self::class, ['token' => $held->token, 'shared' => $isShared]);
    }

    private function lock(Key $key, bool $isShared, float $wait = 0.0): Lock
    {
        return $isShared
            ? $this->locks->shared((string) $key, $this->initialTtl, $wait, owner: null)
            : $this->locks->lock((string) $key, $this->initialTtl, $wait, owner: null);
    }

    private function isShared(Key $key): ?bool
    {
        return $key->hasState(self::class) ? $key->getState(self::class)['shared'] : null;
    }

    /** The key's lock, perhaps from another process; null if it is not held. */
    private function held(Key $key): ?Held
    {
        $held = $this->holds[$key] ?? null;
        if ($held === null && $key->hasState(self::class)) {
            ['token' => $token, 'shared' => $isShared] = $key->getState(self::class);
            try {
                $held = $this->guarded(fn (): Held => $this->lock($key, $isShared)->resume($token));
                $this->holds[$key] = $held;
            } catch (LockConflictedException) {
                $this->forget($key);
            }
        }
        return $held;
    }

    private function extend(Key $key, float $ttl): bool
    {
        $held = $this->held($key);
        if ($held === null) {
            return false;
        }
        try {
            $this->guarded(static fn () => $held->extend(max($ttl, 0.001)));
            return true;
        } catch (LockConflictedException) {
            $this->forget($key);
            return false;
        }
    }

    private function forget(Key $key): void
    {
        unset($this->holds[$key]);
        if ($key->hasState(self::class)) {
            $key->removeState(self::class);
        }
    }

    /**
     * Runs the work, and throws symfony/lock's exceptions.
     *
     * @template T
     * @param \Closure(): T $work
     * @return T
     */
    private function guarded(\Closure $work): mixed
    {
        try {
            return $work();
        } catch (LockRefusedException | LockLostException $error) {
            throw new LockConflictedException($error->getMessage(), 0, $error);
        } catch (LockException $error) {
            throw new LockStorageException($error->getMessage(), 0, $error);
        }
    }
}
