<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Somebody else still had the lock when the wait ended, or the server was changing all that time. */
final class LockTimeout extends LockRefused
{
    public const KIND = 'timeout';
}
