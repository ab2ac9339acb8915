<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Symfony\Component\Semaphore\PersistingStoreInterface;
use Symfony\Component\Semaphore\Store\StoreFactory;

/** symfony/semaphore's StoreFactory, which also knows `serverlock:`. */
final class SemaphoreStoreFactory
{
    /** @param object|string $connection a DSN, or whatever else symfony/semaphore's factory takes */
    public static function createStore(object|string $connection): PersistingStoreInterface
    {
        $dsn = Dsn::parse($connection);
        return $dsn === null ? StoreFactory::createStore($connection) : new SemaphoreStore($dsn->locks());
    }
}
