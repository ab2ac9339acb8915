<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** An argument is wrong, or the key holds something other than a lock. */
final class LockBadArgumentException extends LockException
{
    public const KIND = 'argument';
}

// The old name.
class_alias(LockBadArgumentException::class, LockBadArgument::class);
