<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Held;
use Serverlock\Lock;
use Serverlock\Locks;
use Symfony\Component\Semaphore\Exception\SemaphoreAcquiringException;
use Symfony\Component\Semaphore\Exception\SemaphoreExpiredException;
use Symfony\Component\Semaphore\Key;
use Symfony\Component\Semaphore\PersistingStoreInterface;

/**
 * A store for symfony/semaphore: `new SemaphoreFactory(new SemaphoreStore(new Locks($redis)))`.
 *
 * The key's limit is that of a `limit` lock with the key's name, so a lock of the same name excludes the semaphore. A
 * weight of w takes w places one after the other, and releases them if one is missing. The Key's state contains the
 * tokens, so a serialized Key takes the semaphore to another process.
 */
final class SemaphoreStore implements PersistingStoreInterface
{
    /** @var \WeakMap<Key, list<Held>> */
    private \WeakMap $holds;

    public function __construct(private readonly Locks $locks)
    {
        $this->holds = new \WeakMap();
    }

    public function save(Key $key, float $ttlInSecond): void
    {
        if ($this->exists($key)) {
            return;
        }
        $this->delete($key); // what is left of it
        $held = [];
        try {
            while (count($held) < $key->getWeight()) {
                $held[] = $this->limit($key, $ttlInSecond)->acquire();
            }
        } catch (LockRefusedException $error) {
            array_walk($held, static fn (Held $one): bool => $one->release());
            throw new SemaphoreAcquiringException($key, $error->getMessage());
        }
        $this->holds[$key] = $held;
        $key->setState(self::class, array_map(static fn (Held $one): int => $one->token, $held));
    }

    public function delete(Key $key): void
    {
        $held = $this->held($key);
        $this->forget($key);
        foreach ($held as $one) {
            $one->release();
        }
    }

    public function exists(Key $key): bool
    {
        $held = $this->held($key);
        try {
            array_walk($held, static fn (Held $one): float => $one->verify());
        } catch (LockLostException) {
            return false;
        }
        return $held !== [];
    }

    public function putOffExpiration(Key $key, float $ttlInSecond): void
    {
        $held = $this->held($key);
        try {
            array_walk($held, static fn (Held $one) => $one->extend($ttlInSecond));
        } catch (LockLostException $error) {
            $this->delete($key);
            throw new SemaphoreExpiredException($key, $error->getMessage());
        }
        if ($held === []) {
            throw new SemaphoreExpiredException($key, 'it is not held');
        }
    }

    private function limit(Key $key, float $ttl): Lock
    {
        return $this->locks->limit((string) $key, $key->getLimit(), $ttl);
    }

    /** @return list<Held> the key's places, perhaps from another process; none if one of them is lost */
    private function held(Key $key): array
    {
        if (!isset($this->holds[$key]) && $key->hasState(self::class)) {
            $resume = fn (int $token): Held => $this->limit($key, 300.0)->resume($token);
            try {
                $this->holds[$key] = array_map($resume, $key->getState(self::class));
            } catch (LockLostException) {
                $this->forget($key);
            }
        }
        return $this->holds[$key] ?? [];
    }

    private function forget(Key $key): void
    {
        unset($this->holds[$key]);
        $key->removeState(self::class);
    }
}
