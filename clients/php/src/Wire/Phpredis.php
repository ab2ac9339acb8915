<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\Broken;
use Serverlock\Core\Judge;
use Serverlock\Core\Request;
use Serverlock\Core\Said;
use Serverlock\Exception\LockMisuseException;

/**
 * \Redis: one server. A closure gives the connection instead where the master may be another one later.
 *
 * After a time-out phpredis goes on with the same connection, and would take the late reply for that to the next one:
 * it is closed here. It connects again by itself, but version 5 then forgets which database was selected, and what the
 * application writes next would go to database 0. So locks in another database do not use its connection. Nor can they
 * once phpredis has given up to connect.
 *
 * @internal
 */
final class Phpredis implements Client
{
    private ?\Redis $redis;
    private ?Address $address = null;
    private ?Own $own = null;

    /**
     * @param \Redis|\Closure(): \Redis $source
     * @param array<string, mixed>|null $tls
     */
    public function __construct(
        private readonly \Redis|\Closure $source,
        private readonly mixed $auth = null,
        private readonly ?array $tls = null,
    ) {
        $this->redis = $source instanceof \Redis ? $source : null;
    }

    public function isCluster(): bool
    {
        return false;
    }

    public function prefix(): string
    {
        $prefix = $this->redis()->getOption(\Redis::OPT_PREFIX);
        return is_string($prefix) ? $prefix : '';
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        $redis = $this->redis();
        if ($redis->getMode() !== \Redis::ATOMIC) {
            throw new LockMisuseException(Request::shown([$key]), 'its connection is within multi() or pipeline()');
        }
        if ($redis->getDBNum()) {
            return $this->instead()->call($key, $words, $timeout);
        }
        if ($this->address === null) {
            $this->known(); // it cannot be asked any more once the connection is broken
        }
        $patience = (float) $redis->getOption(\Redis::OPT_READ_TIMEOUT);
        $isShorter = $patience > 0 && $patience <= $timeout;
        try {
            if (!$isShorter) {
                $redis->setOption(\Redis::OPT_READ_TIMEOUT, $timeout);
            }
            return self::reply($redis, $redis->rawCommand(...$words));
        } catch (\RedisException $error) {
            $read = Judge::read($error->getMessage(), $error);
            if ($read instanceof Broken && !$read->isFinal) {
                $hasGivenUp = str_contains($error->getMessage(), 'went away');
                if ($hasGivenUp && $this->source instanceof \Redis && $this->address !== null) {
                    return $this->instead()->call($key, $words, $timeout);
                }
                $redis->close();
            }
            throw $read;
        } finally {
            if (!$isShorter) {
                // 0 means the default of PHP, but setting it would mean no time at all.
                $redis->setOption(\Redis::OPT_READ_TIMEOUT, $patience ?: (float) ini_get('default_socket_timeout'));
            }
        }
    }

    public function address(string $key, float $timeout): Address
    {
        return $this->known()[0] ?? throw new Broken('the client is not connected to a server');
    }

    public function known(): array
    {
        $redis = $this->redis();
        if ($redis->isConnected()) {
            $auth = $this->auth ?? $redis->getAuth();
            $this->address = Address::of($redis->getHost(), $redis->getPort(), $auth, $redis->getDBNum(), $this->tls);
        }
        return $this->address === null ? [] : [$this->address];
    }

    public function forget(): void
    {
        if ($this->source instanceof \Closure) {
            $this->redis = $this->address = null;
        }
        $this->own = null;
    }

    /**
     * nil is false to the library; of some errors it tells only if it is asked.
     *
     * @throws Said
     */
    public static function reply(\Redis|\RedisCluster $redis, mixed $reply): mixed
    {
        if ($reply !== false) {
            return is_array($reply) ? self::list($reply) : $reply;
        }
        $text = $redis->getLastError();
        if ($text === null) {
            return null;
        }
        $redis->clearLastError();
        $error = Judge::read($text);
        throw $error instanceof Said || $error->isFinal ? $error : new Said($text);
    }

    /**
     * @param array<mixed> $items
     * @return array<mixed>
     */
    private static function list(array $items): array
    {
        return array_map(static fn (mixed $item): mixed => match (true) {
            is_array($item) => self::list($item),
            $item === false => null,
            default => $item,
        }, $items);
    }

    private function redis(): \Redis
    {
        if ($this->redis === null) {
            try {
                $this->redis = ($this->source)();
            } catch (\RedisException $error) {
                throw Judge::read($error->getMessage(), $error);
            }
        }
        return $this->redis;
    }

    /** A connection of its own. */
    private function instead(): Own
    {
        $known = $this->known();
        if ($this->own?->known() != $known) {
            $this->own = new Own($known, $this->prefix(), false);
        }
        return $this->own;
    }
}
