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
 * Classifies server and connection errors: the exception's type, and whether to retry. Pure.
 *
 * @internal
 */
final class Failures
{
    /** The same command may succeed later, for example after a failover. */
    private const PASSING = [
        'UNBLOCKED', 'MOVED', 'ASK', 'READONLY', 'LOADING', 'CLUSTERDOWN', 'TRYAGAIN', 'MASTERDOWN', 'BUSY', 'MISCONF',
        'OOM', 'NOREPLICAS', 'GRACE', 'BUSYLOCKS',
    ];
    /** These errors begin with one of those words, but a retry does not help. */
    private const LASTING = '/^(GRACE lease|BUSYLOCKS 64 waits) /';

    /** Reads the text from a library or the server. The server's errors begin with a word in capitals. */
    public static function read(string $text, ?\Throwable $previous = null): ReplyError|ConnectionLost
    {
        $refusesUser = '/\b(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)\b/';
        if (preg_match($refusesUser, $text)) {
            return new ConnectionLost($text, $previous, isFinal: true);
        }
        return preg_match('/^[A-Z]{2,} /', $text)
            ? new ReplyError($text, $previous)
            : new ConnectionLost($text, $previous);
    }

    /** Whether to retry an attempt while wait time remains, or a release in later calls. */
    public static function isTransient(ReplyError|ConnectionLost $error): bool
    {
        if ($error instanceof ConnectionLost) {
            return !$error->isFinal;
        }
        return in_array($error->word, self::PASSING, true) && preg_match(self::LASTING, $error->getMessage()) !== 1;
    }

    /**
     * The error as users get it.
     *
     * @param float|null $waited how long the attempt has waited; null: it does not wait
     */
    public static function typed(ReplyError|ConnectionLost $error, string $key, ?float $waited = null): LockException
    {
        $text = $error->getMessage();
        $cause = $error->getPrevious() ?? $error;
        if ($error instanceof ConnectionLost) {
            return $error->isFinal
                ? new LockDeniedException($key, $text, $cause)
                : new LockNoServerException($key, $text, $cause);
        }
        if ($waited !== null && self::isTransient($error)) {
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

    /** @param bool $isFree the lock was to be recovered, but somebody has released it */
    public static function refused(string $key, bool $isFree = false): LockRefusedException
    {
        $reason = $isFree ? 'there is nothing to recover: the lock is free' : 'somebody else has it';
        return new LockRefusedException($key, $reason);
    }

    public static function timedOut(string $key, float $waited): LockTimeoutException
    {
        return new LockTimeoutException($key, sprintf('somebody else still had it after %.3g s', $waited));
    }
}
