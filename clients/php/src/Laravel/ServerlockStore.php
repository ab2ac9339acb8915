<?php

declare(strict_types=1);

namespace Serverlock\Laravel;

use Illuminate\Cache\RedisStore;
use Illuminate\Contracts\Container\Container;
use Illuminate\Redis\Connections\Connection;
use Serverlock\Adapter\LaravelLock;
use Serverlock\Locks;

/**
 * The store of the cache driver `serverlock`: Laravel's Redis store, with this package's locks in place of its own.
 *
 * Locks are on the connection `lock_connection`, or on `connection`, under the store's prefix.
 */
final class ServerlockStore extends RedisStore
{
    private ?object $client = null;

    private ?Locks $locks = null;

    /** @var array<string, mixed> */
    private array $options = [];

    private bool $hasSessions = false;

    /**
     * @param array<string, mixed> $config the store's entry in config/cache.php; `options` are those of Locks
     */
    public static function of(Container $app, array $config): self
    {
        $connection = $config['connection'] ?? 'default';
        $store = new self($app['redis'], $config['prefix'] ?? $app['config']['cache.prefix'], $connection);
        $store->setLockConnection($config['lock_connection'] ?? $connection);
        $store->options = $config['options'] ?? [];
        $store->hasSessions = $config['sessions'] ?? false;
        return $store;
    }

    /**
     * @param string $name
     * @param int $seconds 0: until it is released
     * @param string|null $owner 1 to 128 visible ASCII characters
     */
    public function lock($name, $seconds = 0, $owner = null): LaravelLock
    {
        return new LaravelLock($this->locks(), $this->prefix . $name, $seconds, $owner);
    }

    /**
     * @param string $name
     * @param string $owner
     */
    public function restoreLock($name, $owner): LaravelLock
    {
        return $this->lock($name, 0, $owner);
    }

    /** A lock that ends one second after this process, if the store's entry has `sessions`; otherwise like lock(). */
    public function processLock(string $name, int $seconds): LaravelLock
    {
        return new LaravelLock($this->locks(), $this->prefix . $name, $seconds, session: $this->hasSessions);
    }

    public function isLocked(string $name): bool
    {
        return $this->locks()->leader($this->prefix . $name, 1.0)->look()->token !== null;
    }

    private function locks(): Locks
    {
        /** @var Connection $connection */
        $connection = $this->lockConnection();
        $client = $connection->client();
        if ($this->locks === null || $client !== $this->client) { // Laravel replaces a client whose connection broke
            [$this->client, $this->locks] = [$client, new Locks($client, ...$this->options)];
        }
        return $this->locks;
    }
}
