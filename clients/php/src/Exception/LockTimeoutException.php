<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Somebody else still had the lock when the wait ended, or the server refused to grant it until then. */
final class LockTimeoutException extends LockRefusedException
{
    public const KIND = 'timeout';
}

// The old name.
class_alias(LockTimeoutException::class, LockTimeout::class);
