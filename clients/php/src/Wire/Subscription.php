<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;

/**
 * A dedicated connection that is subscribed to a channel. Its messages are hints to ask the server again.
 *
 * @internal
 */
final class Subscription
{
    private function __construct(private readonly StreamConnection $connection)
    {
    }

    /**
     * Returns once the server has confirmed the subscription.
     *
     * @throws ConnectionLost|ReplyError
     */
    public static function open(Address $address, string $channel, float $timeout): self
    {
        $connection = StreamConnection::open($address, $timeout);
        $connection->call(['SUBSCRIBE', $channel], $timeout);
        return new self($connection);
    }

    /** Drops old messages, and notices the end of the connection. */
    public function isOpen(): bool
    {
        try {
            while ($this->connection->receive(0.0) !== null) {
                // an old message
            }
            return true;
        } catch (ConnectionLost) {
            return false;
        }
    }

    /**
     * The next message; null if none came in time.
     *
     * @param null|\Closure(): void $checkpoint called if a signal arrives during the wait
     * @throws ConnectionLost
     */
    public function next(float $timeout, ?\Closure $checkpoint): ?string
    {
        $push = $this->connection->receive($timeout, $checkpoint);
        return is_array($push) && ($push[0] ?? null) === 'message' && is_string($push[2] ?? null) ? $push[2] : null;
    }

    public function close(): void
    {
        $this->connection->close();
    }
}
