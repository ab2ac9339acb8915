<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Predis\ClientInterface;
use Predis\Command\RawCommand;
use Predis\Connection\NodeConnectionInterface;
use Predis\PredisException;
use Predis\Response\ErrorInterface;
use Predis\Response\ResponseInterface;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Failures;
use Serverlock\Core\ReplyError;
use Serverlock\Exception\LockBadArgumentException;

/**
 * Predis: one server, or the master of a group, found through Sentinel or the configuration.
 *
 * Calls use the node's own connection, because predis's aggregates repeat commands.
 *
 * @internal
 */
final class Predis implements Client
{
    use OverNetwork;

    public function __construct(private readonly ClientInterface $client)
    {
    }

    public function isCluster(): bool
    {
        return false;
    }

    public function prefix(): string
    {
        return self::prefixOf($this->client);
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        return self::exchange($this->node(), $words, $timeout);
    }

    public function address(string $key, float $timeout): Address
    {
        return self::addressOf($this->node());
    }

    public function known(): array
    {
        return [self::addressOf($this->node())];
    }

    public function forget(): void
    {
        $connection = $this->client->getConnection();
        if (!$connection instanceof NodeConnectionInterface && method_exists($connection, 'getMaster')) {
            try {
                $connection->remove($connection->getMaster()); // so that Sentinel is asked again
            } catch (PredisException) {
                // at the next call
            }
        }
    }

    public static function prefixOf(ClientInterface $client): string
    {
        $prefix = $client->getOptions()->prefix;
        if ($prefix === null) {
            return '';
        }
        if (is_object($prefix) && method_exists($prefix, 'getPrefix')) {
            return (string) $prefix->getPrefix();
        }
        throw new LockBadArgumentException('', "the client's prefix is not a string");
    }

    /**
     * One exchange with that server. If no reply comes, predis closes the connection.
     *
     * @param list<string|int|float> $words
     * @throws ReplyError|ConnectionLost
     */
    public static function exchange(NodeConnectionInterface $node, array $words, float $timeout): mixed
    {
        $stream = null;
        try {
            $resource = self::connected($node, $timeout);
            if (is_resource($resource) && get_resource_type($resource) === 'stream') {
                $stream = $resource;
                stream_set_timeout($stream, (int) $timeout, (int) (fmod($timeout, 1) * 1e6));
            }
            $reply = $node->executeCommand(RawCommand::create(...$words));
        } catch (PredisException $error) {
            throw Failures::read($error->getMessage(), $error);
        } finally {
            if (is_resource($stream)) {
                $own = $node->getParameters()->read_write_timeout ?? (float) ini_get('default_socket_timeout');
                $micros = $own > 0 ? (int) (fmod((float) $own, 1) * 1e6) : 0;
                stream_set_timeout($stream, $own > 0 ? (int) $own : -1, $micros);
            }
        }
        if ($reply instanceof ErrorInterface) {
            $error = Failures::read($reply->getMessage());
            throw $error instanceof ReplyError || $error->isFinal ? $error : new ReplyError($reply->getMessage());
        }
        return self::plain($reply);
    }

    /** Predis sends AUTH and SELECT while it connects, with PHP's time-out if the application set none. */
    private static function connected(NodeConnectionInterface $node, float $timeout): mixed
    {
        if ($node->isConnected()) {
            return $node->getResource();
        }
        $default = ini_set('default_socket_timeout', (string) max(1, (int) ceil($timeout)));
        try {
            return $node->getResource();
        } finally {
            ini_set('default_socket_timeout', (string) $default);
        }
    }

    public static function addressOf(NodeConnectionInterface $node): Address
    {
        $parameters = $node->getParameters();
        $auth = [$parameters->username, $parameters->password];
        $database = (int) $parameters->database;
        if ($parameters->scheme === 'unix') {
            return Address::of("unix://$parameters->path", 0, $auth, $database);
        }
        $isTls = in_array($parameters->scheme, ['tls', 'rediss'], true);
        return Address::of(
            (string) $parameters->host,
            (int) $parameters->port,
            $auth,
            $database,
            $isTls ? (array) $parameters->ssl : null,
        );
    }

    private static function plain(mixed $reply): mixed
    {
        if (is_array($reply)) {
            return array_map(self::plain(...), $reply);
        }
        return $reply instanceof ResponseInterface && $reply instanceof \Stringable ? (string) $reply : $reply;
    }

    private function node(): NodeConnectionInterface
    {
        $connection = $this->client->getConnection();
        if ($connection instanceof NodeConnectionInterface) {
            return $connection;
        }
        try {
            return $connection->getMaster() ?? throw new ConnectionLost('the client knows no master');
        } catch (PredisException $error) {
            throw new ConnectionLost($error->getMessage(), $error);
        }
    }
}
