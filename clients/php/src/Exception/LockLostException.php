<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The lock is no longer held, or no longer certain to be held. */
final class LockLostException extends LockException
{
    public const KIND = 'lost';
}

// The old name.
class_alias(LockLostException::class, LockLost::class);
