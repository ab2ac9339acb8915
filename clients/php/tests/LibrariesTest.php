<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockNoServerException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Locks;
use Serverlock\Wire\Slot;

/** How the libraries treat the application's connection, and the settings that locks restore. */
final class LibrariesTest extends ServerTestCase
{
    /** @return array<string, array{string, bool}> */
    public static function prefixed(): array
    {
        return ['phpredis' => ['phpredis', true], 'phpredis, with the script' => ['phpredis', false],
            'predis' => ['predis', true], 'predis, with the script' => ['predis', false]];
    }

    /** @dataProvider prefixed */
    public function testTheLibrarysPrefixAppliesOnce(string $library, bool $hasModule): void
    {
        $server = $this->server($hasModule);
        if ($library === 'phpredis') {
            $client = $server->connect();
            $client->setOption(\Redis::OPT_PREFIX, 'app:');
            $client->setOption(\Redis::OPT_SERIALIZER, \Redis::SERIALIZER_PHP); // not for locks
        } else {
            $client = new \Predis\Client(['port' => $server->port], ['prefix' => 'app:']);
        }
        $bare = $server->connect();
        $locks = new Locks($client, warnWithoutModule: false);
        $held = $locks->lock('report', 30)->acquire();
        self::assertSame(['app:report'], $bare->keys('*'));
        $held->extend(60);
        self::assertGreaterThan(30, $held->verify());
        self::assertSame('OK', $held->fenced('SET', 'x', '1'));
        self::assertSame('1', $bare->get('app:x'));
        self::assertSame($held->token, $locks->leader('report', 30)->look()->token);
        self::thrown(LockRefusedException::class, fn () => $locks->lock('report', 30, wait: 0.2)->acquire());
        self::assertSame($held->token, $locks->lock('report', 30)->resume($held->token)->token);
        self::assertTrue($held->release());
        self::assertSame(['app:x'], $bare->keys('*'));
    }

    public function testTheApplicationsTimeOutIsUnchanged(): void
    {
        $server = $this->server();
        $redis = $server->connect();
        $redis->setOption(\Redis::OPT_READ_TIMEOUT, 7.5);
        (new Locks($redis))->lock('report', 30)->acquire();
        self::assertSame(7.5, $redis->getOption(\Redis::OPT_READ_TIMEOUT));
        $locks = new Locks($redis, timeout: 60);
        $server->pause();
        $redis->setOption(\Redis::OPT_READ_TIMEOUT, 0.2);
        $began = hrtime(true);
        try {
            self::thrown(LockNoServerException::class, fn () => $locks->lock('other', 30)->acquire());
        } finally {
            $server->resume();
        }
        self::assertLessThan(30, (hrtime(true) - $began) / 1e9, 'the shorter time-out applies');
    }

    /** @return array<string, array{string, int}> */
    public static function databases(): array
    {
        return ['phpredis' => ['phpredis', 0], 'phpredis, database 3' => ['phpredis', 3], 'predis' => ['predis', 0],
            'predis, database 3' => ['predis', 3]];
    }

    /** @dataProvider databases */
    public function testALateReplyIsNotMistakenForTheReplyToAnotherCommand(string $library, int $database): void
    {
        $server = $this->server();
        $client = $library === 'phpredis'
            ? $server->connect()
            : new \Predis\Client(['port' => $server->port, 'database' => $database]);
        $library === 'predis' || $database === 0 || $client->select($database);
        $client->set('mine', '1');
        $locks = new Locks($client, timeout: 0.2);
        $server->pause();
        $began = hrtime(true);
        try {
            self::thrown(LockNoServerException::class, fn () => $locks->lock('report', 30)->acquire());
        } finally {
            $server->resume();
        }
        self::assertLessThan(30e9, hrtime(true) - $began, 'not the minute that PHP would wait');
        self::until('the server answers', fn (): bool => (bool) $server->connect()->ping());
        // Not a token, and from the database that the application has selected.
        self::assertSame('1', $client->get('mine'));
        $locks->lock('again', 30)->acquire();
        self::assertSame('held', $this->stateIn($server, $database, 'again'));
        self::assertSame('1', $client->get('mine'));
    }

    private function stateIn(Server $server, int $database, string $key): string
    {
        $redis = $server->connect();
        $redis->select($database);
        return $redis->rawCommand('LOCK.INFO', $key)[1];
    }

    /** @dataProvider libraries */
    public function testWaitsUseTheApplicationsDatabase(string $library): void
    {
        $server = $this->server();
        $client = $library === 'phpredis'
            ? $server->connect()
            : new \Predis\Client(['port' => $server->port, 'database' => 3]);
        $library === 'predis' || $client->select(3);
        $other = $server->connect();
        $other->select(3);
        $other->rawCommand('LOCK.ACQUIRE', 'report', 'PX', 60000);
        $began = hrtime(true);
        $lock = (new Locks($client))->lock('report', 30, wait: 0.3);
        self::thrown(LockRefusedException::class, fn () => $lock->acquire());
        self::assertGreaterThan(0.25e9, hrtime(true) - $began);
    }

    public function testAPhpredisThatHasGivenUpIsReplaced(): void
    {
        $server = $this->server();
        $redis = $server->connect();
        $redis->setOption(\Redis::OPT_MAX_RETRIES, 0);
        $held = (new Locks($redis))->lock('report', 30)->acquire();
        $server->connect()->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        self::until('it has given up', function () use ($redis): bool {
            try {
                $redis->ping();
                return false;
            } catch (\RedisException $error) {
                return str_contains($error->getMessage(), 'went away');
            }
        });
        self::assertGreaterThan(20, $held->verify());
        self::assertTrue($held->release());
    }

    public function testAConnectionInATransactionIsRefused(): void
    {
        $server = $this->server();
        $redis = $server->connect();
        $locks = new Locks($redis);
        $redis->multi();
        self::thrown(LockMisuseException::class, fn () => $locks->lock('report', 30)->acquire());
        $redis->exec();
        self::assertTrue($locks->lock('report', 30)->acquire()->release());
    }

    public function testAClosureReconnectsToTheCurrentMaster(): void
    {
        [$first, $second] = [$this->server(), $this->server()];
        $master = $first;
        $asked = 0;
        $locks = new Locks(function () use (&$master, &$asked): \Redis {
            ++$asked;
            return $master->connect();
        }, timeout: 0.5);
        self::assertSame(0, $asked, 'nothing is connected before it is needed');
        self::assertTrue($locks->lock('report', 30)->acquire()->release());
        self::assertTrue($locks->lock('report', 30)->acquire()->release());
        self::assertSame(1, $asked);
        $first->connect()->rawCommand('REPLICAOF', '127.0.0.1', (string) $second->port);
        $master = $second;
        $held = $locks->lock('report', 30)->acquire(); // READONLY there
        self::assertSame($held->token, $second->info('report')['token']);
    }

    /** The rows of docs/CLIENTS.md for a missing reply, with one second in place of PHP's default minute. */
    public function testWhatTheLibrariesDoWithoutAReply(): void
    {
        $server = $this->server();
        $default = ini_set('default_socket_timeout', '1');
        try {
            $redis = $server->connect();
            $redis->setOption(\Redis::OPT_READ_TIMEOUT, 1); // phpredis takes it from PHP when it connects
            self::thrown(\RedisException::class, fn () => $redis->rawCommand('BLPOP', 'nothing', '2'));
            usleep(1_200_000);
            self::assertNotSame('hello', $redis->rawCommand('ECHO', 'hello'), 'the reply to BLPOP');
            $predis = new \Predis\Client(['port' => $server->port]);
            $failed = fn () => $predis->executeRaw(['BLPOP', 'nothing', '2']);
            self::thrown(\Predis\Connection\ConnectionException::class, $failed);
            self::assertFalse($predis->isConnected());
            self::assertSame('hello', $predis->executeRaw(['ECHO', 'hello']));
        } finally {
            ini_set('default_socket_timeout', (string) $default);
        }
    }

    /** @return array<string, array{string, string, string}> */
    public static function clusters(): array
    {
        return ['phpredis' => ['phpredis', '', ''], 'phpredis, all' => ['phpredis', 'prod:', 'secret'],
            'predis' => ['predis', '', ''], 'predis, all' => ['predis', 'prod:', 'secret']];
    }

    /**
     * A cluster of two servers: with a prefix, a password, and in a child process.
     *
     * @dataProvider clusters
     */
    public function testAClusterWorksWithPrefixPasswordAndForks(string $library, string $prefix, string $password): void
    {
        $servers = [];
        foreach ([[0, 8191], [8192, 16383]] as $slots) {
            $options = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'];
            $servers[] = $server = $this->server(true, ...$options);
            $server->connect()->rawCommand('CLUSTER', 'ADDSLOTS', ...range(...$slots));
        }
        $servers[1]->connect()->rawCommand('CLUSTER', 'SET-CONFIG-EPOCH', 1);
        $servers[1]->connect()->rawCommand('CLUSTER', 'MEET', '127.0.0.1', $servers[0]->port);
        foreach ($servers as $server) {
            $conn = $server->connect();
            $isUp = fn (): bool => str_contains($conn->rawCommand('CLUSTER', 'INFO'), 'cluster_state:ok')
                && count($conn->rawCommand('CLUSTER', 'SLOTS')) === 2;
            self::until('it is up', $isUp);
            $password === '' || $conn->rawCommand('CONFIG', 'SET', 'requirepass', $password);
        }
        if ($library === 'phpredis') {
            $client = new \RedisCluster(null, ["127.0.0.1:{$servers[0]->port}"], 2, 2, false, $password ?: null);
            $client->setOption(\RedisCluster::OPT_PREFIX, $prefix);
            $locks = new Locks($client, auth: $password ?: null);
        } else {
            $client = new \Predis\Client(
                ["127.0.0.1:{$servers[0]->port}"],
                ['cluster' => 'redis', 'prefix' => $prefix, 'parameters' => array_filter(['password' => $password])],
            );
            $locks = new Locks($client);
        }
        foreach (['r', 'rr', '{a}', '{b}'] as $key) { // on both servers; for the first two the prefix decides
            $slot = Slot::of($prefix . $key);
            $conn = $servers[$slot < 8192 ? 0 : 1]->connect();
            $password === '' || $conn->auth($password);
            $this->playInACluster($locks, $conn, $prefix, $key);
        }
    }

    private function playInACluster(Locks $locks, \Redis $conn, string $prefix, string $key): void
    {
        $held = $locks->lock($key, 30)->acquire();
        self::assertStringContainsString((string) $held->token, $conn->get($prefix . $key));
        $held->verify();
        if (str_starts_with($key, '{')) {
            self::assertSame('OK', $held->fenced('SET', "$key:x", '1'));
        }
        self::thrown(LockRefusedException::class, fn () => $locks->lock($key, 30, wait: 0.2)->acquire());
        $child = pcntl_fork();
        if ($child === 0) {
            $isRight = !$held->isHeld() && !$held->release();
            foreach (['own', 'foo2', 'foo3'] as $own) {
                $isRight = $isRight && $locks->lock($own, 30, wait: 1)->acquire()->release();
            }
            posix_kill((int) getmypid(), $isRight ? SIGKILL : SIGTERM);
        }
        pcntl_waitpid($child, $status);
        self::assertSame(SIGKILL, pcntl_wtermsig($status));
        self::assertTrue($held->release());
        self::assertSame(0, $conn->exists($prefix . $key));
    }
}
