<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\Broken;

/**
 * Calls over connections of the manager's own: where that of the application must not be touched, because it is shared
 * with the parent process, or cannot be used, because the library has given it up.
 *
 * @internal
 */
final class Own implements Client
{
    private readonly Cluster $cluster;
    /** @var array<string, Line> by host:port */
    private array $lines = [];

    /** @param list<Address> $known */
    public function __construct(
        private readonly array $known,
        private readonly string $prefix,
        private readonly bool $isCluster,
    ) {
        $this->cluster = new Cluster($this->exchange(...), fn (): array => array_map(
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
            return $this->cluster->call($key, $words, $timeout);
        }
        return $this->line($this->address($key, $timeout), $timeout)->call($words, $timeout);
    }

    public function address(string $key, float $timeout): Address
    {
        $first = $this->known[0] ?? throw new Broken('the client is not connected to a server');
        return $this->isCluster ? $first->at($this->cluster->owner($key, $timeout)) : $first;
    }

    public function known(): array
    {
        return $this->known;
    }

    public function forget(): void
    {
        $this->cluster->forget();
    }

    /** @param list<string|int|float> $words */
    private function exchange(string $server, array $words, float $timeout): mixed
    {
        return $this->line($this->known[0]->at($server), $timeout)->call($words, $timeout);
    }

    private function line(Address $address, float $timeout): Line
    {
        $kept = $this->lines[$address->uri] ?? null;
        return $kept?->isOpen() ? $kept : $this->lines[$address->uri] = Line::dial($address, $timeout);
    }
}
