<?php

declare(strict_types=1);

namespace Serverlock\Adapter;

use Illuminate\Contracts\Cache\LockProvider;
use Serverlock\Locks;

/**
 * Laravel locks: `(new LaravelLocks(new Locks($redis)))->lock('report', 30)` in place of
 * `Cache::lock('report', 30)`.
 */
final class LaravelLocks implements LockProvider
{
    public function __construct(private readonly Locks $locks)
    {
    }

    /**
     * @param string $name
     * @param int $seconds 0: until it is released
     * @param string|null $owner 1 to 128 visible ASCII characters
     */
    public function lock($name, $seconds = 0, $owner = null): LaravelLock
    {
        return new LaravelLock($this->locks, $name, $seconds, $owner);
    }

    /**
     * @param string $name
     * @param string $owner
     */
    public function restoreLock($name, $owner): LaravelLock
    {
        return $this->lock($name, 0, $owner);
    }
}
