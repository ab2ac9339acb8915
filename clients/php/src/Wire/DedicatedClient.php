<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;

/**
 * Calls over dedicated connections, used if the application's connection must not be touched because it is shared with
 * the parent process, or cannot be used because the library has given up on it.
 *
 * @internal
 */
final class DedicatedClient implements Client
{
    use OverNetwork;

    private readonly Router $router;
    /** @var array<string, Connection> by host:port */
    private array $connections = [];

    /** @param list<Address> $known */
    public function __construct(
        private readonly array $known,
        private readonly string $prefix,
        private readonly bool $isCluster,
    ) {
        $this->router = new Router($this->exchange(...), fn (): array => array_map(
            static fn (Address $address): string => $address->hostAndPort(),
            $this->known,
        ));
    }

    public function isCluster(): bool
    {
        return $this->isCluster;
    }

    public function prefix(): string
    {
        return $this->prefix;
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        if ($this->isCluster) {
            return $this->router->call($key, $words, $timeout);
        }
        return $this->connection($this->address($key, $timeout), $timeout)->call($words, $timeout);
    }

    public function address(string $key, float $timeout): Address
    {
        $first = $this->known[0] ?? throw new ConnectionLost('the client is not connected to a server');
        return $this->isCluster ? $first->at($this->router->owner($key, $timeout)) : $first;
    }

    public function known(): array
    {
        return $this->known;
    }

    public function forget(): void
    {
        $this->router->forget();
    }

    /** @param list<string|int|float> $words */
    private function exchange(string $server, array $words, float $timeout): mixed
    {
        return $this->connection($this->known[0]->at($server), $timeout)->call($words, $timeout);
    }

    private function connection(Address $address, float $timeout): Connection
    {
        $kept = $this->connections[$address->uri] ?? null;
        return $kept?->isOpen() ? $kept : $this->connections[$address->uri] = $this->open($address, $timeout);
    }
}
