<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Locks;
use Symfony\Component\Cache\Adapter\AbstractAdapter;
use Symfony\Component\Cache\Exception\InvalidArgumentException;

/**
 * `serverlock://localhost:6379?ttl=300&wait=60`: what follows the scheme is that of symfony/cache's `redis:`, with its
 * user, password, Sentinel (`redis_sentinel`) and cluster (`redis_cluster`). `serverlocks:` is with TLS, as `rediss:`.
 */
final class Dsn
{
    private const SCHEMES = ['serverlock:' => 'redis:', 'serverlocks:' => 'rediss:'];

    private function __construct(
        private readonly string $redis,
        /** @var float how many seconds a lock lasts until its first refresh */
        public readonly float $ttl,
        /** @var float how many seconds a blocking acquisition waits at most */
        public readonly float $wait,
    ) {
    }

    /** Null if it has another scheme. */
    public static function parse(mixed $dsn): ?self
    {
        $scheme = is_string($dsn) ? strstr($dsn, ':', true) . ':' : '';
        if (!isset(self::SCHEMES[$scheme])) {
            return null;
        }
        [$address, $query] = explode('?', substr($dsn, strlen($scheme)), 2) + [1 => ''];
        $own = ['ttl' => '300', 'wait' => 'INF'];
        $rest = [];
        foreach (array_filter(explode('&', $query), strlen(...)) as $parameter) {
            [$name, $value] = explode('=', $parameter, 2) + [1 => ''];
            isset($own[$name]) ? $own[$name] = $value : $rest[] = $parameter;
        }
        $redis = self::SCHEMES[$scheme] . $address . ($rest === [] ? '' : '?' . implode('&', $rest));
        return new self($redis, self::seconds('ttl', $own['ttl']), self::seconds('wait', $own['wait']));
    }

    public function locks(): Locks
    {
        parse_str(ltrim((string) strstr($this->redis, '?'), '?'), $query);
        $isCluster = filter_var($query['redis_cluster'] ?? false, FILTER_VALIDATE_BOOLEAN);
        $class = $query['class'] ?? (extension_loaded('redis') ? \Redis::class : \Predis\Client::class);
        if (!$isCluster && is_a($class, \Redis::class, true)) {
            // Called again after a failover: Sentinel then names another master.
            return new Locks(fn (): \Redis => $this->connect(), tls: $this->isTls() ? [] : null);
        }
        return new Locks($this->connect(), tls: $this->isTls() && $isCluster ? [] : null);
    }

    private function isTls(): bool
    {
        return str_starts_with($this->redis, 'rediss:');
    }

    private function connect(): object
    {
        if (!class_exists(AbstractAdapter::class)) {
            throw new LockBadArgumentException('', 'the DSN serverlock: needs symfony/cache');
        }
        try {
            return AbstractAdapter::createConnection($this->redis, ['lazy' => false]);
        } catch (InvalidArgumentException $error) { // also if the server cannot be reached
            throw new \RedisException($error->getMessage(), 0, $error);
        }
    }

    private static function seconds(string $name, string $value): float
    {
        if ($value === 'INF') {
            return INF;
        }
        if (!is_numeric($value)) {
            throw new LockBadArgumentException('', "$name in the DSN is \"$value\", not a number of seconds");
        }
        return (float) $value;
    }
}
