<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** The server cannot grant this lock now (GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM), or it lacks the module. */
final class LockUnavailableException extends LockException
{
    public const KIND = 'unavailable';
}

// The old name.
class_alias(LockUnavailableException::class, LockUnavailable::class);
