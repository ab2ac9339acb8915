<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;

/**
 * A dedicated connection, for waits and for sessions. One command at a time is on its way.
 *
 * @internal
 */
interface Connection
{
    /**
     * @param list<string|int|float> $words
     * @param null|\Closure(): void $checkpoint called if a signal arrives during the wait; its exception ends the call
     * @throws ReplyError|ConnectionLost
     */
    public function call(array $words, float $timeout, ?\Closure $checkpoint = null): mixed;

    /**
     * @param list<string|int|float> $words
     * @throws ConnectionLost
     */
    public function send(array $words, float $timeout): void;

    /**
     * The reply to what was sent. If none comes in time, the connection is closed.
     *
     * @param null|\Closure(): void $checkpoint called if a signal arrives during the wait; after its exception, the
     *     reply is still to be read
     * @throws ReplyError|ConnectionLost
     */
    public function reply(float $timeout, ?\Closure $checkpoint = null): mixed;

    /** Whether a reply is still to be read. */
    public function isPending(): bool;

    /** Reads the reply that is still to come, and drops it. Returns whether another command can be sent. */
    public function settle(float $timeout): bool;

    /** Peeks, to notice if the other side has closed it. A signal handler may do so during a call. */
    public function isOpen(): bool;

    /** Whether this side has closed the connection. */
    public function isClosed(): bool;

    public function close(): void;
}
