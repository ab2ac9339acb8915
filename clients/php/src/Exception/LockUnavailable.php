<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The server grants nothing now, or not this (GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM); or it lacks the module. */
final class LockUnavailable extends LockException
{
    public const KIND = 'unavailable';
}
