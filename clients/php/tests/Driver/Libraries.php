<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Hooks;
use Serverlock\Locks;
use Serverlock\Testing\Server;

/** The libraries' clients, as an application creates them, and the manager for each. */
final class Libraries
{
    public const NAMES = ['phpredis', 'predis'];

    /** The abilities of both libraries and of PHP. PHP has no `background` or `stop`: it does one thing at a time. */
    public const CAN = [
        'sentinel', 'cluster', 'tls', 'unix', 'fork', 'drop', 'session', 'leader', 'pooled', 'cancel', 'clock',
        'refusals', 'moves', 'queue', 'scopes', 'prefix', 'once', 'default_owner', 'recover_free', 'reentrant',
        'deadlock', 'memory', 'single_flight',
    ];

    /** A timer with a finer resolution than a second needs FFI. */
    public const CAN_WITH_FFI = ['storm', 'census'];

    public static function version(string $name): string
    {
        return $name === 'phpredis' ? (string) phpversion('redis') : \Predis\Client::VERSION;
    }

    /**
     * @param array<string, mixed> $order
     * @return array{object, Locks} the application's client, and its manager
     */
    public static function open(string $name, array $order, ?Hooks $hooks): array
    {
        $at = $order['at'];
        $timeout = ($order['timeout_ms'] ?? 5000) / 1000;
        $portable = $order['portable'] ?? true;
        $more = ['timeout' => $timeout, 'portable' => $portable, 'hooks' => $hooks, 'logger' => new StderrLogger()];
        $prefix = $order['prefix'] ?? '';
        if ($name === 'predis') {
            $client = self::predis($at, $timeout, $prefix === '' ? [] : ['prefix' => $prefix]);
            return [$client, new Locks($client, ...$more)];
        }
        $tls = isset($at['tls']) ? ['cafile' => $at['tls']['ca']] : null;
        if ($at['kind'] === 'cluster') {
            $nodes = array_map(static fn (array $node): string => "$node[0]:$node[1]", $at['nodes']);
            $client = new \RedisCluster(null, $nodes, $timeout, $timeout);
            return [$client, new Locks($client, ...$more)];
        }
        if ($at['kind'] === 'sentinel') {
            $connect = static fn (): \Redis => self::master($at, $timeout);
            return [$connect(), new Locks($connect, ...$more)];
        }
        $connect = static fn (): \Redis => self::phpredis($at, $timeout, $tls);
        try {
            $client = $connect();
        } catch (\RedisException $error) {
            if ($error->getMessage() !== 'Connection refused') {
                throw $error;
            }
            return [new \Redis(), new Locks($connect, ...$more, tls: $tls)]; // phpredis cannot connect later
        }
        $client->setOption(\Redis::OPT_PREFIX, $prefix);
        return [$client, new Locks($client, ...$more, tls: $tls)];
    }

    /** @param list<string> $words */
    public static function raw(object $client, array $words): mixed
    {
        if ($client instanceof Server) {
            return $client->call($words);
        }
        return $client instanceof \Redis ? $client->rawCommand(...$words) : $client->executeRaw($words);
    }

    /**
     * @param array<string, mixed> $at
     * @param array<string, mixed>|null $tls
     */
    private static function phpredis(array $at, float $timeout, ?array $tls): \Redis
    {
        $redis = new \Redis();
        if ($at['kind'] === 'unix') {
            $redis->connect($at['path']);
        } elseif ($tls !== null) {
            $redis->connect("tls://$at[host]", $at['port'], $timeout, null, 0, 0, ['stream' => $tls]);
        } else {
            $redis->connect($at['host'], $at['port'], $timeout);
        }
        $auth = array_values(array_filter([$at['user'] ?? null, $at['password'] ?? null]));
        if ($auth) {
            $redis->auth(count($auth) === 1 ? $auth[0] : $auth);
        }
        return $redis;
    }

    /** @param array<string, mixed> $at */
    private static function master(array $at, float $timeout): \Redis
    {
        $error = null;
        foreach ($at['sentinels'] as [$host, $port]) {
            try {
                $sentinel = new \RedisSentinel($host, $port, $timeout);
                [$host, $port] = $sentinel->getMasterAddrByName($at['master']);
                return self::phpredis(['kind' => 'single', 'host' => $host, 'port' => (int) $port], $timeout, null);
            } catch (\RedisException $error) {
                continue;
            }
        }
        throw $error ?? new \RedisException('there are no Sentinels');
    }

    /**
     * @param array<string, mixed> $at
     * @param array<string, mixed> $options
     */
    private static function predis(array $at, float $timeout, array $options): \Predis\Client
    {
        $user = array_filter(['username' => $at['user'] ?? null, 'password' => $at['password'] ?? null]);
        $server = static fn (array $pair): array => ['host' => $pair[0], 'port' => $pair[1], 'timeout' => $timeout];
        return match ($at['kind']) {
            'unix' => new \Predis\Client(['scheme' => 'unix', 'path' => $at['path']] + $user),
            'sentinel' => new \Predis\Client(
                array_map($server, $at['sentinels']),
                ['replication' => 'sentinel', 'service' => $at['master'], 'parameters' => ['timeout' => $timeout]],
            ),
            'cluster' => new \Predis\Client(array_map($server, $at['nodes']), ['cluster' => 'redis']),
            default => new \Predis\Client($server([$at['host'], $at['port']]) + $user
                + (isset($at['tls']) ? ['scheme' => 'tls', 'ssl' => ['cafile' => $at['tls']['ca']]] : []), $options),
        };
    }
}
