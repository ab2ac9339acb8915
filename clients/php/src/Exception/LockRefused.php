<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Somebody else has the lock; or an operator cancelled the wait. */
class LockRefused extends LockException
{
    public const KIND = 'refused';
}
