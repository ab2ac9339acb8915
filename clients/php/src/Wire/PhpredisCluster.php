<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\Clock;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Failures;
use Serverlock\Core\Request;
use Serverlock\Exception\LockMisuseException;

/**
 * \RedisCluster. Its own read time-out bounds its calls.
 *
 * A raw command follows neither MOVED nor ASK, and then fails as if the connection had broken. So after a failure,
 * calls use our own connections for a moment, if the password is known.
 *
 * @internal
 */
final class PhpredisCluster implements Client
{
    use OverNetwork;

    private const FALLBACK_SECONDS = 1.0;

    private readonly Router $router;
    private ?DedicatedClient $own = null;
    private float $fallbackUntil = -INF;

    /** @param array<string, mixed>|null $tls */
    public function __construct(
        private readonly \RedisCluster $redis,
        private readonly mixed $auth = null,
        private readonly ?array $tls = null,
    ) {
        $exchange = fn (string $server, array $words): mixed => $this->at(self::split($server), $words);
        $this->router = new Router($exchange, fn (): array => array_map(
            static fn (Address $address): string => $address->hostAndPort(),
            $this->known(),
        ));
    }

    public function isCluster(): bool
    {
        return true;
    }

    public function prefix(): string
    {
        $prefix = $this->redis->getOption(\Redis::OPT_PREFIX);
        return is_string($prefix) ? $prefix : '';
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        if ($this->redis->getMode() !== \Redis::ATOMIC) {
            throw new LockMisuseException(Request::shown([$key]), 'its connection is within multi()');
        }
        if (Clock::now() < $this->fallbackUntil) {
            try {
                $this->own ??= new DedicatedClient($this->known(), $this->prefix(), true);
                return $this->own->call($key, $words, $timeout);
            } catch (ConnectionLost $error) {
                $this->fallbackUntil = -INF;
                if (!$error->isFinal) {
                    throw $error;
                }
            }
        }
        $this->own = null;
        try {
            return $this->at(substr($key, strlen($this->prefix())), $words); // phpredis adds the prefix for the slot
        } catch (ConnectionLost $error) {
            $this->fallbackUntil = Clock::now() + self::FALLBACK_SECONDS;
            throw $error;
        }
    }

    public function address(string $key, float $timeout): Address
    {
        $first = $this->known()[0] ?? throw new ConnectionLost('the client knows no server of the cluster');
        return $first->at($this->router->owner($key, $timeout));
    }

    public function known(): array
    {
        $known = [];
        foreach ($this->redis->_masters() as [$host, $port]) {
            $known[] = Address::of($host, (int) $port, $this->auth, 0, $this->tls);
        }
        return $known;
    }

    public function forget(): void
    {
        $this->router->forget();
    }

    /**
     * @param string|array{string, int} $target a key, or a server
     * @param list<string|int|float> $words
     */
    private function at(string|array $target, array $words): mixed
    {
        try {
            $this->redis->clearLastError(); // from the application's last command
            return Phpredis::reply($this->redis, $this->redis->rawCommand($target, ...$words));
        } catch (\RedisClusterException | \RedisException $error) {
            $read = Failures::read($error->getMessage(), $error);
            if ($read instanceof ConnectionLost) {
                $this->redis->close(); // a late reply must not be read as the next command's
                $this->learn($target);
            }
            throw $read;
        }
    }

    /**
     * EXISTS follows MOVED, and the library remembers the new server.
     *
     * @param string|array{string, int} $target
     */
    private function learn(string|array $target): void
    {
        try {
            is_string($target) && $this->redis->exists($target);
        } catch (\RedisClusterException | \RedisException) {
            // the next call reports it
        }
    }

    /** @return array{string, int} */
    private static function split(string $server): array
    {
        $separator = (int) strrpos($server, ':');
        return [substr($server, 0, $separator), (int) substr($server, $separator + 1)];
    }
}
