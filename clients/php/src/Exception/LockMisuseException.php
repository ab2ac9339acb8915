<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The same lock again within its own scope, closed Locks, a lock that was released before. */
final class LockMisuseException extends LockException
{
    public const KIND = 'misuse';
}

// The old name.
class_alias(LockMisuseException::class, LockMisuse::class);
