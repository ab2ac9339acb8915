<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Wire\Address;
use Serverlock\Wire\Client;
use Serverlock\Wire\OverNetwork;

/** A client whose dedicated connections, and so its subscriptions, get no reply until a test lets them. */
final class UnsubscribedClient implements Client
{
    use OverNetwork;

    public bool $maySubscribe = false;
    /** @var resource accepts connections, and never replies */
    private $silent;

    public function __construct(private readonly Client $client)
    {
        $this->silent = stream_socket_server('tcp://127.0.0.1:0') ?: throw new \RuntimeException('no port is free');
    }

    public function isCluster(): bool
    {
        return $this->client->isCluster();
    }

    public function prefix(): string
    {
        return $this->client->prefix();
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        return $this->client->call($key, $words, $timeout);
    }

    public function address(string $key, float $timeout): Address
    {
        $address = $this->client->address($key, $timeout);
        return $this->maySubscribe ? $address : $address->at((string) stream_socket_get_name($this->silent, false));
    }

    public function known(): array
    {
        return $this->client->known();
    }

    public function forget(): void
    {
        $this->client->forget();
    }
}
