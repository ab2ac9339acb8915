<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

/** Work that the test watches: it reports its beginning and end in a list, and ends when the test says so. */
final class Work
{
    public static function redis(): \Redis
    {
        $redis = new \Redis();
        $redis->connect('127.0.0.1', (int) getenv('SERVERLOCK_PORT'), 5);
        return $redis;
    }

    public static function run(string $name): void
    {
        $redis = self::redis();
        $redis->rPush('log', "$name begins");
        while ($redis->exists("end $name") === 0) {
            usleep(10_000);
        }
        $redis->rPush('log', "$name ends");
    }
}
