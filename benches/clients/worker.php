<?php

// One process of the client benchmark, in PHP: worker.php CONTENDER PORT. run.py describes its input.

declare(strict_types=1);

require __DIR__ . '/../../clients/php/tests/autoload.php';

use Serverlock\Locks;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

const LEASE = 30;

/** A separate connection for waits, without a time-out: with one, the client would give up in the middle of a wait. */
function phpredis(int $port, float $timeout = 0): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $port);
    $timeout === 0.0 || $redis->setOption(Redis::OPT_READ_TIMEOUT, $timeout);
    return $redis;
}

/** Each returns, for a key and a wait, a function that acquires and one that releases. */
$contenders = [
    'phpredis package' => static function (int $port): Closure {
        $locks = new Locks(phpredis($port));
        return static function (string $key, float $wait) use ($locks): array {
            $lock = $locks->lock($key, LEASE, wait: $wait);
            return [$lock->acquire(...), static fn ($held) => $held->release()];
        };
    },
    'phpredis raw' => static function (int $port): Closure {
        [$client, $patient] = [phpredis($port), phpredis($port, -1)];
        return static function (string $key, float $wait) use ($client, $patient): array {
            $redis = $wait > 0 ? $patient : $client;
            $more = $wait > 0 ? ['WAIT', (int) ($wait * 1000)] : [];
            return [
                static fn () => $redis->rawCommand('LOCK.ACQUIRE', $key, 'PX', LEASE * 1000, ...$more),
                static fn ($token) => $redis->rawCommand('LOCK.RELEASE', $key, $token),
            ];
        };
    },
    'phpredis symfony' => static function (int $port): Closure {
        $factory = new LockFactory(new RedisStore(phpredis($port)));
        return static function (string $key, float $wait) use ($factory): array {
            $lock = $factory->createLock($key, LEASE);
            return [
                static fn () => $lock->acquire($wait > 0) || throw new RuntimeException($key),
                static fn () => $lock->release(),
            ];
        };
    },
    'predis package' => static function (int $port): Closure {
        $locks = new Locks(new Predis\Client(['port' => $port]));
        return static function (string $key, float $wait) use ($locks): array {
            $lock = $locks->lock($key, LEASE, wait: $wait);
            return [$lock->acquire(...), static fn ($held) => $held->release()];
        };
    },
    'predis raw' => static function (int $port): Closure {
        [$client, $patient] = [
            new Predis\Client(['port' => $port]), new Predis\Client(['port' => $port, 'read_write_timeout' => 0]),
        ];
        return static function (string $key, float $wait) use ($client, $patient): array {
            $redis = $wait > 0 ? $patient : $client;
            $more = $wait > 0 ? ['WAIT', (int) ($wait * 1000)] : [];
            return [
                static fn () => $redis->executeRaw(['LOCK.ACQUIRE', $key, 'PX', LEASE * 1000, ...$more]),
                static fn ($token) => $redis->executeRaw(['LOCK.RELEASE', $key, $token]),
            ];
        };
    },
    'predis symfony' => static function (int $port): Closure {
        $factory = new LockFactory(new RedisStore(new Predis\Client(['port' => $port])));
        return static function (string $key, float $wait) use ($factory): array {
            $lock = $factory->createLock($key, LEASE);
            return [
                static fn () => $lock->acquire($wait > 0) || throw new RuntimeException($key),
                static fn () => $lock->release(),
            ];
        };
    },
];

function cpu(): float
{
    $used = getrusage();
    $micros = $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
    return $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'] + $micros / 1e6;
}

function pairs(Closure $acquire, Closure $release, int $count): float
{
    $began = hrtime(true);
    for ($turn = 0; $turn < $count; ++$turn) {
        $release($acquire());
    }
    return (hrtime(true) - $began) / 1e9;
}

/** @return list<int> the microseconds that each grant took */
function hot(Closure $acquire, Closure $release, float $seconds): array
{
    [$waits, $end] = [[], hrtime(true) + $seconds * 1e9];
    while (($asked = hrtime(true)) < $end) {
        $held = $acquire();
        $waits[] = intdiv(hrtime(true) - $asked, 1000);
        $release($held);
    }
    return $waits;
}

[, $contender, $port] = $argv;
$made = $contenders[$contender]((int) $port);
$kept = [];
$lock = static function (string $key, float $wait) use (&$kept, $made): array {
    return $kept["$wait $key"] ??= $made($key, $wait);
};
$own = 'bench:' . getmypid();
pairs(...[...$lock($own, 0), 3]); // connects, loads scripts
echo "ready\n";
while (($line = fgets(STDIN)) !== false) {
    [$order, $words] = [strtok(trim($line), ' '), array_slice(explode(' ', trim($line)), 1)];
    $began = cpu();
    $answer = match ($order) {
        'pair' => [pairs(...[...$lock($own, 0), (int) $words[0]]), cpu() - $began],
        'hot' => [hot(...[...$lock($words[0], 60), (float) $words[1]]), cpu() - $began],
        'rss' => (int) preg_replace('/.*VmRSS:\s*(\d+).*/s', '$1', (string) file_get_contents('/proc/self/status')),
    };
    echo json_encode($answer), "\n";
}
