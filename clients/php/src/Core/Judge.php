<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockDeadlockException;
use Serverlock\Exception\LockDeniedException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockNoServerException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;

/**
 * What an error of the server or the connection means for a lock: which type it becomes, and what may pass. Pure.
 *
 * @internal
 */
final class Judge
{
    /** The server, or its part in the group, is changing: the same call may succeed later. */
    private const PASSING = [
        'UNBLOCKED', 'MOVED', 'ASK', 'READONLY', 'LOADING', 'CLUSTERDOWN', 'TRYAGAIN', 'MASTERDOWN', 'BUSY', 'MISCONF',
        'OOM', 'NOREPLICAS', 'GRACE', 'BUSYLOCKS',
    ];
    /** These begin like passing ones, but time does not cure them. */
    private const LASTING = '/^(GRACE lease|BUSYLOCKS 64 waits) /';

    /** What the text of a library or the server means: the server begins its errors with a word in capitals. */
    public static function read(string $text, ?\Throwable $previous = null): Said|Broken
    {
        $refusesUser = '/\b(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)\b/';
        if (preg_match($refusesUser, $text)) {
            return new Broken($text, $previous, isFinal: true);
        }
        return preg_match('/^[A-Z]{2,} /', $text) ? new Said($text, $previous) : new Broken($text, $previous);
    }

    /** Whether to try again while wait time remains, and in the background what has to be given back. */
    public static function mayPass(Said|Broken $error): bool
    {
        if ($error instanceof Broken) {
            return !$error->isFinal;
        }
        return in_array($error->word, self::PASSING, true) && preg_match(self::LASTING, $error->getMessage()) !== 1;
    }

    /**
     * The error as users get it.
     *
     * @param float|null $waited how long the attempt has waited; null: it does not wait
     */
    public static function typed(Said|Broken $error, string $key, ?float $waited = null): LockException
    {
        $text = $error->getMessage();
        $cause = $error->getPrevious() ?? $error;
        if ($error instanceof Broken) {
            return $error->isFinal
                ? new LockDeniedException($key, $text, $cause)
                : new LockNoServerException($key, $text, $cause);
        }
        if ($waited !== null && self::mayPass($error)) {
            return new LockTimeoutException($key, sprintf('not granted within %.3g s: %s', $waited, $text), $cause);
        }
        if ($error->word === 'CLOCK' || in_array($error->word, self::PASSING, true) || $error->isUnknownCommand()) {
            return new LockUnavailableException($key, $text, $cause);
        }
        return match ($error->word) {
            'DEADLOCK' => new LockDeadlockException($key, $text, $cause),
            'NOPERM' => new LockDeniedException($key, $text, $cause),
            default => new LockBadArgumentException($key, $text, $cause),
        };
    }

    public static function refused(string $key): LockRefusedException
    {
        return new LockRefusedException($key, 'somebody else has it');
    }

    public static function timedOut(string $key, float $waited): LockTimeoutException
    {
        return new LockTimeoutException($key, sprintf('somebody else still had it after %.3g s', $waited));
    }
}
