<?php

declare(strict_types=1);

namespace Serverlock\Compat;

use Serverlock\Adapter\SymfonyStore;
use Serverlock\Locks;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Tests\Store\AbstractStoreTestCase;
use Symfony\Component\Lock\Tests\Store\BlockingStoreTestTrait;
use Symfony\Component\Lock\Tests\Store\ExpiringStoreTestTrait;
use Symfony\Component\Lock\Tests\Store\SharedLockStoreTestTrait;

/** The tests that symfony/lock has for a store with these abilities. */
abstract class StoreTestCase extends AbstractStoreTestCase
{
    use BlockingStoreTestTrait;
    use ExpiringStoreTestTrait;
    use SharedLockStoreTestTrait;

    abstract protected function client(): object;

    protected function getStore(): PersistingStoreInterface
    {
        return new SymfonyStore(new Locks($this->client()));
    }

    protected function getClockDelay(): int
    {
        return 250_000;
    }
}
