<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Somebody else has the lock, or an operator cancelled the wait. */
class LockRefusedException extends LockException
{
    public const KIND = 'refused';
}

// The old name.
class_alias(LockRefusedException::class, LockRefused::class);
