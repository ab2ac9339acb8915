<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Illuminate\Contracts\Cache\LockTimeoutException;
use Serverlock\Adapter\LaravelLocks;
use Serverlock\Locks;

/** Laravel locks, used as in Laravel's own tests of Redis locks. */
final class LaravelLockTest extends ServerTestCase
{
    private Server $server;

    private function locks(bool $hasModule = true): LaravelLocks
    {
        $this->server = $this->server($hasModule);
        return new LaravelLocks(new Locks($this->server->connect()));
    }

    /** @return array<string, array{bool}> */
    public static function servers(): array
    {
        return ['with the module' => [true], 'with the script' => [false]];
    }

    /** @dataProvider servers */
    public function testALockIsHeldByOne(bool $hasModule): void
    {
        $locks = $this->locks($hasModule);
        $lock = $locks->lock('foo', 10);
        self::assertTrue($lock->get());
        self::assertFalse($locks->lock('foo', 10)->get());
        self::assertFalse($locks->lock('foo', 10)->release());
        self::assertTrue($lock->release());
        self::assertFalse($lock->release());
        self::assertSame('done', $locks->lock('foo', 10)->get(fn (): string => 'done'));
        self::assertTrue($locks->lock('foo', 10)->get());
    }

    public function testBlockWaitsInTheQueue(): void
    {
        $locks = $this->locks();
        $redis = $this->server->connect();
        $token = $redis->rawCommand('LOCK.ACQUIRE', 'foo', 'PX', 60000);
        self::thrown(LockTimeoutException::class, fn () => $locks->lock('foo', 10)->block(1));
        self::thrown(LockTimeoutException::class, fn () => $locks->lock('foo', 10)->block(0));
        $child = pcntl_fork();
        if ($child === 0) {
            while ($this->server->info('foo')['waiters'] === 0) {
                usleep(10_000);
            }
            $this->server->connect()->rawCommand('LOCK.RELEASE', 'foo', $token);
            posix_kill((int) getmypid(), SIGKILL);
        }
        self::assertSame('done', $locks->lock('foo', 10)->block(10, fn (): string => 'done'));
        pcntl_waitpid($child, $status);
        self::assertSame('free', $this->server->info('foo')['state']);
        self::assertTrue($locks->lock('foo', 10)->block(1));
    }

    /** @dataProvider servers */
    public function testAnotherProcessReleasesWithTheOwner(bool $hasModule): void
    {
        $locks = $this->locks($hasModule);
        $lock = $locks->lock('foo', 10);
        self::assertTrue($lock->get());
        self::assertFalse($locks->restoreLock('foo', 'somebody')->release());
        $restored = (new LaravelLocks(new Locks($this->server->connect())))->restoreLock('foo', $lock->owner());
        self::assertTrue($restored->release());
        self::assertFalse($lock->release(), 'it is no longer held');
        self::assertTrue($locks->lock('foo', 10, 'me')->get());
        self::assertTrue($locks->restoreLock('foo', 'me')->release());
    }

    /** @dataProvider servers */
    public function testForceReleaseReleasesAnybodysLock(bool $hasModule): void
    {
        $locks = $this->locks($hasModule);
        $locks->lock('foo')->forceRelease();
        self::assertTrue($locks->lock('foo', 10)->get());
        $locks->lock('foo')->forceRelease();
        self::assertTrue($locks->lock('foo', 10)->get());
    }

    public function testWithoutSecondsItLastsUntilItIsReleased(): void
    {
        $lock = $this->locks()->lock('foo');
        self::assertTrue($lock->get());
        self::assertGreaterThan(1e11, $this->server->info('foo')['lease-ms']);
        self::assertTrue($lock->release());
    }

    public function testAClientThatUsesSetNxAndThisOneExcludeEachOther(): void
    {
        $locks = $this->locks();
        $redis = $this->server->connect();
        self::assertTrue($redis->set('foo', 'owner', ['nx', 'ex' => 10])); // what Laravel's own lock sends
        self::assertFalse($locks->lock('foo', 10)->get());
        $redis->del('foo');
        self::assertTrue($locks->lock('foo', 10)->get());
        self::assertFalse($redis->set('foo', 'owner', ['nx', 'ex' => 10]));
    }
}
