<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Adapter\SymfonyStore;
use Serverlock\Locks;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

/** The store beyond symfony/lock's own tests, which scripts/compat.sh runs. */
final class SymfonyStoreTest extends ServerTestCase
{
    private Server $server;

    protected function setUp(): void
    {
        $this->server = $this->server();
    }

    private function store(float $ttl = 300.0, float $wait = INF): SymfonyStore
    {
        return new SymfonyStore(new Locks($this->server->connect()), $ttl, $wait);
    }

    /** @param array<string, bool> $expected */
    private static function assertExist(SymfonyStore $store, array $expected, Key ...$keys): void
    {
        $seen = [];
        foreach (array_keys($expected) as $at => $name) {
            $seen[$name] = $store->exists($keys[$at]);
        }
        self::assertSame($expected, $seen);
    }

    public function testKeysOfOneResourceExcludeEachOther(): void
    {
        $store = $this->store();
        [$one, $two] = [new Key('a'), new Key('a')];
        $store->save($one);
        self::thrown(LockConflictedException::class, fn () => $store->save($two));
        self::assertExist($store, ['one' => true, 'two' => false], $one, $two);
        $store->delete($two); // another key's
        self::assertTrue($store->exists($one));
        $store->delete($one);
        $store->save($two);
        self::assertExist($store, ['one' => false, 'two' => true], $one, $two);
        self::thrown(LockConflictedException::class, fn () => $store->putOffExpiration($one, 30));
    }

    public function testALockExpiresAndItsExpirationCanBePutOff(): void
    {
        $store = $this->store();
        $key = new Key('a');
        $store->save($key);
        $store->putOffExpiration($key, 100.0);
        self::assertTrue($store->exists($key));
        MovedClock::by(monotonic: 95.0);
        self::assertFalse($store->exists($key));
        $store->save($key = new Key('b'));
        for ($turn = 0; $turn < 4; ++$turn) {
            MovedClock::by(monotonic: 80.0);
            $store->putOffExpiration($key, 100.0);
        }
        self::assertTrue($store->exists($key));
        $store->save($key = new Key('c'));
        $store->putOffExpiration($key, 0.3);
        self::until('others can have it', function () use ($store): bool {
            try {
                $store->save(new Key('c'));
                return true;
            } catch (LockConflictedException) {
                return false;
            }
        });
    }

    public function testABlockingSaveWaitsInTheQueue(): void
    {
        $store = $this->store();
        [$one, $two] = [new Key('a'), new Key('a')];
        $store->save($one);
        $child = pcntl_fork();
        if ($child === 0) {
            try {
                $store->waitAndSave($two);
                $status = $store->exists($two) ? 0 : 1;
                $store->delete($two);
            } catch (\Throwable $error) {
                fwrite(STDERR, (string) $error);
                $status = 2;
            }
            posix_kill((int) getmypid(), $status === 0 ? SIGKILL : SIGTERM); // phpunit must not end in the child
        }
        self::until('the child waits', fn (): bool => $this->server->info('a')['waiters'] === 1);
        self::thrown(LockConflictedException::class, fn () => $store->save(new Key('a')));
        self::assertTrue($store->exists($one), 'the parent still has it');
        $store->delete($one);
        pcntl_waitpid($child, $status);
        self::assertSame(SIGKILL, pcntl_wtermsig($status));
        self::assertSame('free', $this->server->info('a')['state']);
        $store->save($one);
        self::thrown(LockConflictedException::class, fn () => $this->store(300, 0.2)->waitAndSave($two));
    }

    public function testAWaitMayBeLongerThanTheLease(): void
    {
        $this->server->connect()->rawCommand('LOCK.ACQUIRE', 'a', 'PX', 1500);
        $store = $this->store(1.0);
        $store->waitAndSave($key = new Key('a'));
        self::assertTrue($store->exists($key));
        self::assertFalse($key->isExpired());
    }

    public function testABlockingReaderIsSaved(): void
    {
        $store = $this->store();
        $store->waitAndSaveRead($key = new Key('a'));
        self::assertTrue($store->exists($key));
    }

    public function testAReaderBecomesTheWriterIfItIsAlone(): void
    {
        $store = $this->store();
        [$one, $two] = [new Key('a'), new Key('a')];
        $store->saveRead($one);
        $store->saveRead($two);
        self::thrown(LockConflictedException::class, fn () => $store->save($one));
        self::assertExist($store, ['one' => true, 'two' => true], $one, $two);
        $store->delete($two);
        $store->save($one);
        self::thrown(LockConflictedException::class, fn () => $store->saveRead($two));
        $store->saveRead($one); // and back
        $store->saveRead($two);
        self::assertExist($store, ['one' => true, 'two' => true], $one, $two);
    }

    public function testAKeyTakesItsLockToAnotherProcess(): void
    {
        $key = new Key('a');
        $this->store()->save($key);
        $key = unserialize(serialize($key));
        $store = $this->store();
        self::assertTrue($store->exists($key));
        $store->putOffExpiration($key, 60);
        $store->delete($key);
        self::assertFalse($store->exists($key));
        self::assertSame('free', $this->server->info('a')['state']);
    }

    public function testSymfonysFactoryWorks(): void
    {
        $factory = new LockFactory($this->store());
        [$one, $two] = [$factory->createLock('report', 30), $factory->createLock('report', 30)];
        self::assertTrue($one->acquire());
        self::assertFalse($two->acquire());
        $one->refresh();
        self::assertTrue($one->isAcquired());
        self::assertGreaterThan(20, $one->getRemainingLifetime());
        $one->release();
        self::assertTrue($two->acquire(true));
        unset($two); // this releases the lock, as usual in symfony/lock
        self::assertSame('free', $this->server->info('report')['state']);
    }

    public function testErrorsOtherThanConflictsAreStorageErrors(): void
    {
        $this->server->connect()->rPush('a', 'x');
        $error = self::thrown(LockStorageException::class, fn () => $this->store()->save(new Key('a')));
        self::assertStringContainsString('WRONGTYPE', $error->getMessage());
    }

    public function testSymfonysOwnStoreAndThisOneExcludeEachOther(): void
    {
        $theirs = new RedisStore($this->server->connect());
        $theirs->save($key = new Key('a'));
        self::thrown(LockStorageException::class, fn () => $this->store()->save(new Key('a')));
        $theirs->delete($key);
        $this->store()->save(new Key('a'));
        self::thrown(LockConflictedException::class, fn () => $theirs->save($key));
    }
}
