<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Serverlock\Adapter\SymfonyStore;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\StoreFactory;

/** symfony/lock's StoreFactory, which also knows `serverlock:`. */
final class LockStoreFactory
{
    /** @param object|string $connection a DSN, or whatever else symfony/lock's factory takes */
    public static function createStore(object|string $connection): PersistingStoreInterface
    {
        $dsn = Dsn::parse($connection);
        return $dsn === null
            ? StoreFactory::createStore($connection)
            : new SymfonyStore($dsn->locks(), $dsn->ttl, $dsn->wait);
    }
}
