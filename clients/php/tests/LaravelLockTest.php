<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Illuminate\Contracts\Cache\LockTimeoutException;
use Serverlock\Adapter\LaravelLock;
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

    /** @dataProvider servers */
    public function testItsOwnerRefreshesItAlsoInAnotherProcess(bool $hasModule): void
    {
        $locks = $this->locks($hasModule);
        $redis = $this->server->connect();
        $lock = $locks->lock('foo', 10);
        self::assertFalse($lock->refresh(), 'it was never held');
        self::assertTrue($lock->get());
        self::assertTrue($lock->refresh(1000));
        self::assertGreaterThan(900_000, $redis->pttl('foo'));
        self::assertTrue($lock->refresh());
        self::assertLessThan(100_000, $redis->pttl('foo'));
        self::assertTrue($locks->restoreLock('foo', $lock->owner())->refresh(2000));
        self::assertGreaterThan(1_900_000, $redis->pttl('foo'));
        self::assertFalse($locks->restoreLock('foo', 'somebody')->refresh(10));
        self::assertTrue($lock->refresh(0));
        self::assertGreaterThan(1e11, $redis->pttl('foo'));
        $locks->lock('foo')->forceRelease();
        self::assertFalse($lock->refresh(), 'it was taken away');
    }

    public function testItHasLaravelsContractForRefreshWhereThereIsOne(): void
    {
        $contract = 'namespace Illuminate\Contracts\Cache; interface RefreshableLock extends Lock
            { public function refresh($seconds = null); }';
        $check = 'namespace Test; require ' . var_export(__DIR__ . '/autoload.php', true) . ';
            $ours = \Serverlock\Adapter\LaravelLock::class;
            if (@$argv[1] !== null) { eval($argv[1]); }
            echo json_encode(array_values(class_implements($ours)));';
        $implemented = static fn (string ...$contract): array => (array) json_decode((string) shell_exec(
            implode(' ', array_map(escapeshellarg(...), [PHP_BINARY, '-d', 'error_reporting=8191', '-r', $check, '--',
                ...$contract])),
        ), true);
        self::assertContains('Illuminate\Contracts\Cache\Lock', $implemented());
        self::assertContains('Illuminate\Contracts\Cache\RefreshableLock', $implemented($contract));
    }

    public function testASessionEndsWithItsProcess(): void
    {
        $locks = $this->locks();
        $child = pcntl_fork();
        if ($child === 0) {
            $lock = new LaravelLock(new Locks($this->server->connect()), 'foo', 1000, session: true);
            $isHeld = $lock->get() && $this->server->info('foo')['state'] === 'held';
            posix_kill((int) getmypid(), $isHeld ? SIGKILL : SIGTERM); // phpunit must not end in the child
        }
        pcntl_waitpid($child, $status);
        self::assertSame(SIGKILL, pcntl_wtermsig($status), 'it was never held');
        self::until('it is free', fn (): bool => $locks->lock('foo', 10)->get());
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
