<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The server does not allow this user the connection, the command or the key. */
final class LockDeniedException extends LockException
{
    public const KIND = 'denied';
}

// The old name.
class_alias(LockDeniedException::class, LockDenied::class);
