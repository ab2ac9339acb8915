<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;

/**
 * Follows one attempt and the lock that it gets: see Hooks. One of granted(), failed() and result() is called before
 * the call that asks for the lock returns or throws. After granted(), ended() is called once. An exception goes to the
 * logger. $command is the command that asked for the lock, or the function of the script.
 */
interface Watch
{
    /** The attempt got the lock. */
    public function granted(string $command, int $token, float $waited): void;

    /**
     * The attempt got nothing.
     *
     * @param null|LockException $why null if another exception ended the attempt, such as that of a signal handler
     */
    public function failed(string $command, float $waited, ?LockException $why): void;

    /** The attempt of Locks::singleFlight() got another holder's result. The hooks are not called for it. */
    public function result(string $command, float $waited): void;

    /**
     * The lock is no longer held.
     *
     * @param float $held the seconds since the grant
     * @param null|LockLostException $why the loss, if it was lost
     */
    public function ended(End $end, float $held, ?LockLostException $why): void;
}
