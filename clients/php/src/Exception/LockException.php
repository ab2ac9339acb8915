<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** Whatever goes wrong with a lock. The error of the library or the server, if there was one, is getPrevious(). */
abstract class LockException extends \RuntimeException
{
    /** @param string $key the key of the lock, or its keys, quoted */
    final public function __construct(public readonly string $key, string $reason, ?\Throwable $previous = null)
    {
        parent::__construct(($key === '' ? '' : "the lock $key: ") . $reason, 0, $previous);
    }
}
