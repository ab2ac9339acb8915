<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The lock is not held any more, or not for certain. */
final class LockLost extends LockException
{
    public const KIND = 'lost';
}
