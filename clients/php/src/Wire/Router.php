<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;

/**
 * Sends commands to the cluster's server that has the key, and follows MOVED and ASK.
 *
 * @internal
 */
final class Router
{
    private const MOST_HOPS = 5;

    /** @var list<array{int, int, string}>|null first slot, last slot, host:port */
    private ?array $ranges = null;

    /**
     * @param \Closure(string, list<string|int|float>, float): mixed $exchange with the server at host:port
     * @param \Closure(): list<string> $known host:port of servers that can be asked
     */
    public function __construct(private readonly \Closure $exchange, private readonly \Closure $known)
    {
    }

    /**
     * @param list<string|int|float> $words
     * @throws ReplyError|ConnectionLost
     */
    public function call(string $key, array $words, float $timeout): mixed
    {
        [$server, $isAsking] = [$this->owner($key, $timeout), false];
        for ($hop = 1;; ++$hop) {
            try {
                if ($isAsking) {
                    ($this->exchange)($server, ['ASKING'], $timeout);
                }
                return ($this->exchange)($server, $words, $timeout);
            } catch (ConnectionLost $error) {
                $this->forget();
                throw $error;
            } catch (ReplyError $error) {
                $isAsking = $error->word === 'ASK';
                $target = explode(' ', $error->getMessage())[2] ?? '';
                if (!$isAsking && $error->word !== 'MOVED' || $hop === self::MOST_HOPS || !str_contains($target, ':')) {
                    throw $error;
                }
                // A server that does not know its own host names only the port.
                $server = str_starts_with($target, ':') ? preg_replace('/:\d+\z/', '', $server) . $target : $target;
                if (!$isAsking) {
                    $this->forget();
                }
            }
        }
    }

    /**
     * The server that has the key, as host:port.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function owner(string $key, float $timeout): string
    {
        $slot = Slot::of($key);
        foreach ($this->ranges ??= $this->ask($timeout) as [$first, $last, $server]) {
            if ($first <= $slot && $slot <= $last) {
                return $server;
            }
        }
        $this->forget();
        throw new ReplyError("CLUSTERDOWN no server has slot $slot");
    }

    public function forget(): void
    {
        $this->ranges = null;
    }

    /** @return list<array{int, int, string}> */
    private function ask(float $timeout): array
    {
        $error = new ConnectionLost('the client knows no server of the cluster');
        $known = ($this->known)();
        shuffle($known);
        foreach ($known as $server) {
            try {
                $reply = ($this->exchange)($server, ['CLUSTER', 'SLOTS'], $timeout);
            } catch (ReplyError | ConnectionLost $error) {
                continue;
            }
            $ranges = [];
            foreach (is_array($reply) ? $reply : [] as $range) {
                [$first, $last, [$host, $port]] = $range;
                $host = is_string($host) && $host !== '' ? $host : preg_replace('/:\d+\z/', '', $server);
                $ranges[] = [$first, $last, "$host:$port"];
            }
            if ($ranges) {
                return $ranges;
            }
            $error = new ReplyError('CLUSTERDOWN no slots are served');
        }
        throw $error;
    }
}
