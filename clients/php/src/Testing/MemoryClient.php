<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Core\Time;
use Serverlock\Wire\Address;
use Serverlock\Wire\Client;
use Serverlock\Wire\Connection;

/**
 * A client of a Server. A forked child has no server.
 *
 * @internal
 */
final class MemoryClient implements Client
{
    public function __construct(private readonly Memory $memory)
    {
    }

    public function isCluster(): bool
    {
        return false;
    }

    public function prefix(): string
    {
        return '';
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        return (new Commands($this->memory))->call($words);
    }

    public function address(string $key, float $timeout): Address
    {
        return Address::of('memory', 0);
    }

    public function open(Address $address, float $timeout): Connection
    {
        return new MemoryConnection($this->memory);
    }

    public function clock(): Time
    {
        return $this->memory->clock;
    }

    public function known(): array
    {
        return [];
    }

    public function forget(): void
    {
    }
}
