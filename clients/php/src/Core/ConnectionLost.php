<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * No connection, or no reply in time; the connection is closed.
 *
 * @internal
 */
final class ConnectionLost extends \RuntimeException
{
    /** @param bool $isFinal whether a retry is pointless, because the server does not let this user in */
    public function __construct(string $text, ?\Throwable $previous = null, public readonly bool $isFinal = false)
    {
        parent::__construct($text, 0, $previous);
    }
}
