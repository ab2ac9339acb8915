<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Wire\Connection;

/**
 * Checks after a grant that enough replicas have it, or wrote it to disk.
 *
 * @internal
 */
final class Replicas
{
    /**
     * @param Connection $connection the grant's connection
     * @throws LockException|ReplyError|ConnectionLost
     */
    public static function confirm(Connection $connection, Request $request, float $timeout): void
    {
        $options = $request->options;
        $within = Request::milliseconds($options->replicasWithin);
        $patience = $options->replicasWithin + $timeout;
        try {
            if ($options->replicas > 0) {
                $have = $connection->call(['WAIT', $options->replicas, $within], $patience);
                self::demand($request, $have, $options->replicas, 'replicas have');
            }
            if ($options->fsync) {
                $have = array_sum((array) $connection->call(['WAITAOF', 1, $options->replicas, $within], $patience));
                self::demand($request, $have, 1 + $options->replicas, 'servers wrote to disk');
            }
        } catch (ReplyError $error) {
            if ($error->word !== 'ERR') {
                throw $error;
            }
            $reason = "the grant cannot be confirmed: {$error->getMessage()}";
            throw new LockUnavailableException($request->name, $reason, $error);
        }
    }

    private static function demand(Request $request, int|float $have, int $want, string $what): void
    {
        if ($have < $want) {
            $reason = "$have of $want $what the grant; the lock was released";
            throw new LockUnavailableException($request->name, $reason);
        }
    }
}
