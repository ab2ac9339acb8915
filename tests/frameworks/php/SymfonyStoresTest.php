<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

use Serverlock\Adapter\SymfonyStore;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Locks;
use Serverlock\Symfony\LockStoreFactory;
use Serverlock\Symfony\SemaphoreStore;
use Serverlock\Symfony\SemaphoreStoreFactory;
use Serverlock\Tests\Server;
use Serverlock\Tests\ServerTestCase;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key as LockKey;
use Symfony\Component\Lock\Store\InMemoryStore;
use Symfony\Component\Semaphore\Exception\SemaphoreAcquiringException;
use Symfony\Component\Semaphore\Exception\SemaphoreExpiredException;
use Symfony\Component\Semaphore\Key;
use Symfony\Component\Semaphore\Store\RedisStore;

/** The semaphore store, and stores from DSNs, in one process. */
final class SymfonyStoresTest extends ServerTestCase
{
    private function store(Server $server): SemaphoreStore
    {
        return new SemaphoreStore(new Locks($server->connect()));
    }

    public function testAWeightTakesAllOfItsPlacesOrNone(): void
    {
        $store = $this->store($server = $this->server());
        $store->save($two = new Key('a', 3, 2), 60);
        self::thrown(SemaphoreAcquiringException::class, fn () => $store->save(new Key('a', 3, 2), 60));
        $store->save($one = new Key('a', 3), 60);
        self::thrown(SemaphoreAcquiringException::class, fn () => $store->save(new Key('a', 3), 60));
        $store->save($two, 60); // it has its places already
        $store->delete($two);
        self::assertFalse($store->exists($two));
        self::assertTrue($store->exists($one));
        $store->save(new Key('a', 3, 2), 60);
        $store->delete($two); // a second time
        self::assertTrue($store->exists($one));
    }

    public function testAKeyTakesItsPlacesToAnotherProcess(): void
    {
        $server = $this->server();
        $this->store($server)->save($key = new Key('a', 2, 2), 60);
        $key = unserialize(serialize($key));
        $store = $this->store($server);
        self::assertTrue($store->exists($key));
        $store->putOffExpiration($key, 600);
        self::assertGreaterThan(500_000, $server->info('a')['lease-ms']);
        $store->delete($key);
        self::assertSame('free', $server->info('a')['state']);
    }

    public function testASemaphoreThatWasTakenAwayHasExpired(): void
    {
        $store = $this->store($server = $this->server());
        $store->save($key = new Key('a', 2, 2), 60);
        $token = $key->getState(SemaphoreStore::class)[1];
        $server->connect()->rawCommand('LOCK.RELEASE', 'a', $token);
        self::assertFalse($store->exists($key));
        self::thrown(SemaphoreExpiredException::class, fn () => $store->putOffExpiration($key, 60));
        self::assertSame('free', $server->info('a')['state'], 'the other place was released');
        self::thrown(SemaphoreExpiredException::class, fn () => $store->putOffExpiration($key, 60));
    }

    public function testTheDsnHasTheServersPasswordAndDatabase(): void
    {
        $server = $this->server(true, '--requirepass', 'se:cret');
        $redis = $server->connect();
        $redis->auth('se:cret');
        $redis->select(3);
        foreach (['', '&class=Predis\Client'] as $parameters) {
            $dsn = "serverlock://se%3Acret@127.0.0.1:$server->port/3?ttl=60&timeout=5$parameters";
            $store = LockStoreFactory::createStore($dsn);
            self::assertInstanceOf(SymfonyStore::class, $store);
            $store->save($key = new LockKey('a'));
            self::assertGreaterThan(60_000, $redis->pttl('a'));
            self::assertLessThan(200_000, $redis->pttl('a'));
            $store->delete($key);
            self::assertSame(0, $redis->exists('a'));
            SemaphoreStoreFactory::createStore($dsn)->save($key = new Key('b', 1), 60);
            $redis->del('b');
        }
    }

    public function testOtherDsnsAreSymfonys(): void
    {
        self::assertInstanceOf(InMemoryStore::class, LockStoreFactory::createStore('in-memory'));
        $redis = new \Redis();
        self::assertInstanceOf(RedisStore::class, SemaphoreStoreFactory::createStore($redis));
    }

    public function testABadDsnAndAnUnreachableServerAreErrors(): void
    {
        $error = self::thrown(
            LockBadArgumentException::class,
            fn () => LockStoreFactory::createStore('serverlock://localhost?wait=long'),
        );
        self::assertStringContainsString('wait in the DSN is "long"', $error->getMessage());
        // Nothing accepts connections on this port (tcpmux).
        $store = LockStoreFactory::createStore('serverlock://127.0.0.1:1?ttl=10&wait=0.1');
        self::thrown(LockStorageException::class, fn () => $store->save(new LockKey('a')));
    }
}
