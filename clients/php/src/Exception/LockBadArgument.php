<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** An argument is wrong; or the key holds something that is no lock. */
final class LockBadArgument extends LockException
{
    public const KIND = 'argument';
}
