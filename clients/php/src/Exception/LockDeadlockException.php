<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The wait would close a cycle of clients that wait for each other's session locks. */
final class LockDeadlockException extends LockException
{
    public const KIND = 'deadlock';
}

// The old name.
class_alias(LockDeadlockException::class, LockDeadlock::class);
