<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** No connection to a server, or no reply in time. */
final class LockNoServerException extends LockException
{
    public const KIND = 'no_server';
}

// The old name.
class_alias(LockNoServerException::class, LockNoServer::class);
