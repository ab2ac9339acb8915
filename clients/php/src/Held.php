<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Core\Hold;
use Serverlock\Core\Keeper;
use Serverlock\Core\Release;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;

/**
 * A held lock, until it is released or lost.
 *
 * PHP does one thing at a time: **only check() and extend() renew the lease**. Call check() before each step of the
 * work; during a step that takes longer than the lease, the lock is lost.
 *
 * Dropping a Held does not release the lock, because its work may be half done, and the next holder can find this out.
 * The lock ends with its lease; session locks end once the last Held of their connection is dropped or released. In a
 * child process a Held counts as lost, and its lock is left alone.
 */
class Held
{
    /** The key, or the keys, quoted. */
    public readonly string $key;
    /** The fencing token. It grows with each grant of the key: pass it to the storage with each write. */
    public readonly int $token;
    /** The last holder, if it never released the lock; requires details, or recover(). */
    public readonly ?Predecessor $predecessor;
    /** How many seconds it took to get the lock. */
    public readonly float $waited;

    /** @internal */
    public readonly Hold $hold;

    /** @internal */
    public function __construct(private readonly Keeper $keeper, private readonly Release $release, Hold $hold)
    {
        $this->hold = $hold;
        $this->key = $hold->request->name;
        $this->token = $hold->token;
        $this->predecessor = $hold->predecessor;
        $this->waited = $hold->granted - $hold->began;
    }

    /**
     * Throws unless the lock is certainly held. Renews the lease once a third of it has passed; before that, this sends
     * nothing.
     *
     * @throws LockLostException
     */
    public function check(): void
    {
        $this->keeper->check($this->hold);
    }

    /** Whether the lock is certainly held. Does not renew it. */
    public function isHeld(): bool
    {
        return $this->keeper->isHeld($this->hold);
    }

    /** For how many seconds the lock is certainly held without a renewal; 0 once it is lost or released. */
    public function left(): float
    {
        return $this->keeper->left($this->hold);
    }

    /**
     * Sets a new lease, counted from now; null means the lock's usual lease. Call this before a long step.
     *
     * @throws LockException
     */
    public function extend(?float $lease = null): void
    {
        $this->keeper->extend($this->hold, $lease);
    }

    /**
     * Asks the server whether the lock is held, and for how many seconds.
     *
     * @throws LockException
     */
    public function verify(): float
    {
        return $this->keeper->verify($this->hold);
    }

    /**
     * Runs one command on the lock's server, only if the lock is held there at that moment. In a cluster the key must
     * be in the lock's slot. The client's prefix applies to the key; nil is returned as null.
     *
     * @throws LockException
     */
    public function fenced(string $command, string $key, string|int|float ...$args): mixed
    {
        return $this->keeper->fenced($this->hold, $command, $key, array_values($args));
    }

    /**
     * Releases the lock, and returns whether it was held to the end. If the server does not reply, a later call to the
     * manager releases the lock, or it expires with its lease.
     *
     * If the lock is reentrant and was acquired several times, only the last release ends it. The others return whether
     * it is held.
     *
     * @throws LockException
     */
    public function release(): bool
    {
        return $this->hold->leaveAgain() ? $this->isHeld() : $this->end();
    }

    /**
     * Releases the lock, even if it was acquired several times.
     *
     * @internal
     * @throws LockException
     */
    public function end(): bool
    {
        return $this->release->release($this->hold);
    }
}
