<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Asking for a lock within its own scope, using closed Locks, or releasing a lock twice. */
final class LockMisuseException extends LockException
{
    public const KIND = 'misuse';
}

// The old name.
class_alias(LockMisuseException::class, LockMisuse::class);
