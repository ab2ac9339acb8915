<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Failures;
use Serverlock\Core\Request;
use Serverlock\Core\ReplyError;
use Serverlock\Exception\LockMisuseException;

/**
 * \Redis: one server. If the master may change, a closure returns the connection instead.
 *
 * After a time-out phpredis keeps using the connection, and would mistake the late reply for the reply to the next
 * command, so the connection is closed. phpredis reconnects on its own, but version 5 then forgets the selected
 * database, and the application's next command would go to database 0. So locks in another database do not use its
 * connection. Nor can they once phpredis has given up connecting.
 *
 * @internal
 */
final class Phpredis implements Client
{
    use OverNetwork;

    private ?\Redis $redis;
    private ?Address $address = null;
    private ?DedicatedClient $own = null;

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
            $this->known(); // once the connection has broken, the library no longer knows its address
        }
        $patience = (float) $redis->getOption(\Redis::OPT_READ_TIMEOUT);
        $isShorter = $patience > 0 && $patience <= $timeout;
        try {
            if (!$isShorter) {
                $redis->setOption(\Redis::OPT_READ_TIMEOUT, $timeout);
            }
            $redis->clearLastError(); // from the application's last command
            return self::reply($redis, $redis->rawCommand(...$words));
        } catch (\RedisException $error) {
            $read = Failures::read($error->getMessage(), $error);
            if ($read instanceof ConnectionLost && !$read->isFinal) {
                $hasGivenUp = str_contains($error->getMessage(), 'went away');
                if ($hasGivenUp && $this->source instanceof \Redis && $this->address !== null) {
                    return $this->instead()->call($key, $words, $timeout);
                }
                $redis->close();
            }
            throw $read;
        } finally {
            if (!$isShorter) {
                // 0 means PHP's default here, but setting 0 would mean no time at all.
                $redis->setOption(\Redis::OPT_READ_TIMEOUT, $patience ?: (float) ini_get('default_socket_timeout'));
            }
        }
    }

    public function address(string $key, float $timeout): Address
    {
        return $this->known()[0] ?? throw new ConnectionLost('the client is not connected to a server');
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
     * The library returns false for nil, and for some errors, which it keeps in getLastError().
     *
     * @throws ReplyError
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
        $error = Failures::read($text);
        throw $error instanceof ReplyError || $error->isFinal ? $error : new ReplyError($text);
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
                throw Failures::read($error->getMessage(), $error);
            }
        }
        return $this->redis;
    }

    /** Our own connection. */
    private function instead(): DedicatedClient
    {
        $known = $this->known();
        if ($this->own?->known() != $known) {
            $this->own = new DedicatedClient($known, $this->prefix(), false);
        }
        return $this->own;
    }
}
