<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Predis\ClientInterface;
use Predis\Connection\NodeConnectionInterface;
use Predis\PredisException;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Failures;

/**
 * Predis with a cluster: the nodes of its pool. The Router finds a key's node, because the library itself would repeat
 * a command if a node does not reply.
 *
 * @internal
 */
final class PredisCluster implements Client
{
    use OverNetwork;

    private readonly Router $router;

    public function __construct(private readonly ClientInterface $client)
    {
        $this->router = new Router(
            fn (string $server, array $words, float $timeout): mixed =>
                Predis::exchange($this->node($server), $words, $timeout),
            fn (): array => array_keys($this->nodes()),
        );
    }

    public function isCluster(): bool
    {
        return true;
    }

    public function prefix(): string
    {
        return Predis::prefixOf($this->client);
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        return $this->router->call($key, $words, $timeout);
    }

    public function address(string $key, float $timeout): Address
    {
        $first = $this->known()[0] ?? throw new ConnectionLost('the client knows no server of the cluster');
        return $first->at($this->router->owner($key, $timeout));
    }

    public function known(): array
    {
        return array_values(array_map(Predis::addressOf(...), $this->nodes()));
    }

    public function forget(): void
    {
        $this->router->forget();
    }

    /** @return array<string, NodeConnectionInterface> by host:port */
    private function nodes(): array
    {
        $nodes = [];
        try {
            foreach ($this->client->getConnection() as $node) {
                $nodes[(string) $node] = $node;
            }
        } catch (PredisException $error) { // it asks for the slots if it knows none
            throw Failures::read($error->getMessage(), $error);
        }
        return $nodes;
    }

    private function node(string $server): NodeConnectionInterface
    {
        $pool = $this->client->getConnection();
        $node = $pool->getConnectionById($server);
        if ($node === null) {
            $separator = (int) strrpos($server, ':');
            $node = $this->client->getOptions()->connections->create([
                'host' => substr($server, 0, $separator),
                'port' => (int) substr($server, $separator + 1),
            ]);
            $pool->add($node);
        }
        return $node;
    }
}
