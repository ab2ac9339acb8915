<?php

declare(strict_types=1);

require_once __DIR__ . '/LockLine.php';

/**
 * A lock of redis-lock for phpredis. Needs PHP 8.1.
 *
 *     $lock = new RedisLock($connect, 'report', lease: 30, wait: 60);
 *     $lock->with(function (RedisLock $lock) {
 *         $lock->token();   // the fencing token: give it to the storage that is written to
 *         $lock->check();   // before each step, and more often than each half of the lease
 *         $lock->extend();  // before a long step: the whole lease is ahead
 *     });
 *
 * $connect makes a new connection, `fn (float $timeout): Redis`, to who is the master now; never pconnect.
 *
 * It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost
 * reply nor a time-out loses the place in line or leaves a lock behind. PHP has no threads: **nothing renews the lease
 * but check() and extend()**. check() renews it when a third of it is over. Where that fails, the lock is lost at nine
 * tenths of the lease, counted from when the last renewal was sent: both throw LockLost, and so does the end of with().
 * Work that calls neither is not stopped. After exit() or a fatal error the lock ends with its lease.
 */
final class RedisLock
{
    private readonly LockLine $line;
    private float $until = 0;
    private float $renewAt = 0;
    private ?LockLost $lost = null;
    private ?Throwable $cause = null;

    /**
     * Times are seconds. With $session the lock ends with its connection. With $fallback a server without the module
     * gets SET NX PX instead: no order among those who wait, and no token (null). $keepWaiting is asked between the
     * pieces of the wait, of 3 s at most by default: false ends it.
     */
    public function __construct(
        Closure $connect,
        string $key,
        private readonly float $lease,
        private readonly float $wait = 0,
        private float $timeout = 5,
        ?string $owner = null,
        private readonly bool $session = false,
        bool $fallback = false,
        private readonly ?Closure $keepWaiting = null,
    ) {
        $this->timeout = min($timeout, $lease / 4); // a renewal can fail and the next still be in time
        $this->line = new LockLine($connect, $key, $lease, $owner, $session, $fallback);
    }

    /** What the work returns, done while the lock is held. Throws LockRefused when somebody else has it. */
    public function with(callable $work): mixed
    {
        $this->acquire();
        try {
            $result = $work($this);
        } catch (Throwable $error) {
            try {
                $this->release();
            } catch (LockError | RedisException) {
                // that of the work is the one to tell
            }
            throw $error;
        }
        $this->release();
        return $result;
    }

    /** The fencing token; null under the fallback. */
    public function token(): ?int
    {
        return $this->line->token;
    }

    /** How many seconds of the lease are left, by the clock of this side. */
    public function left(): float
    {
        return max(0, $this->until - self::now());
    }

    /** Renews the lease if a third of it is over. Throws LockLost unless the lock is held for certain. */
    public function check(): void
    {
        if ($this->lost || self::now() >= min($this->renewAt, $this->giveUpAt())) {
            $this->renew();
        }
    }

    /** Renews the lease. Throws LockLost unless that succeeds. */
    public function extend(): void
    {
        while (!$this->renew()) {
            usleep((int) ($this->lease / 20 * 1e6));
        }
    }

    private function acquire(): void
    {
        [$this->lost, $this->cause] = [null, null];
        $this->line->begin();
        try {
            $sent = $this->waitInLine();
            if (self::now() > $sent + $this->lease / 3) { // the grant may be as old as the call: begin anew
                $sent = self::now();
                if ($this->line->exchange('EXTEND', $this->timeout) !== 1) {
                    throw $this->line->lost('it was over before it could be used');
                }
            }
        } catch (Throwable $error) {
            $this->line->disconnect();
            if (!$error instanceof LockRefused && !$error instanceof LockUnsupported) {
                $this->line->cancel($this->timeout); // it may have been granted
            }
            throw $error;
        }
        $this->heldSince($sent);
    }

    /** When the command was sent that got the lock. */
    private function waitInLine(): float
    {
        [$end, $tried] = [self::now() + $this->wait, false];
        while (true) {
            $sent = self::now();
            $piece = min(max($end - $sent, 0), $this->timeout * 0.6);
            try {
                if ($this->line->exchange('ACQUIRE', $this->timeout, $piece) !== null) {
                    return $sent;
                }
                // No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
                $early = !$this->line->isPlain && self::now() < $sent + $piece - 0.05;
                if ($early || self::now() >= $end) {
                    throw $this->line->refused();
                }
                $pause = $this->line->isPlain ? random_int(50, 150) : 0;
            } catch (RedisException $error) {
                if (!LockLine::mayPass($error) || $tried && self::now() >= $end) {
                    throw $error;
                }
                [$tried, $pause] = [true, 50];
            }
            usleep($pause * 1000);
            if ($this->keepWaiting && !($this->keepWaiting)()) {
                $this->line->disconnect();
                $this->line->cancel($this->timeout);
                throw $this->line->refused();
            }
        }
    }

    private function release(): void
    {
        [$end, $resent] = [self::now() + $this->timeout, false];
        try {
            do {
                try {
                    $reply = $this->line->exchange('RELEASE', $this->timeout);
                } catch (RedisException $error) {
                    if ($this->lost || !LockLine::mayPass($error) || $resent && self::now() > $end) {
                        throw $this->lost ?? $error;
                    }
                    [$reply, $resent] = [null, true];
                    usleep(50_000);
                }
            } while ($reply === null);
        } finally {
            $this->line->disconnect();
        }
        // Sent again, it finds the lock released already: 0.
        if ($this->lost || $reply !== 1 && !($reply === 0 && $resent && $this->left() > 0)) {
            throw $this->lost ?? $this->line->lost('it was over before it was released');
        }
    }

    /** Whether it was renewed; if not, it may be later. */
    private function renew(): bool
    {
        $sent = self::now();
        if ($this->lost || $sent >= $this->giveUpAt()) {
            throw $this->lost ??= $this->line->lost('its lease was not renewed', $this->cause);
        }
        try {
            if ($this->line->exchange('EXTEND', min($this->timeout, $this->giveUpAt() - $sent)) !== 1) {
                throw $this->lost = $this->line->lost('it was taken away');
            }
            $this->heldSince($sent);
            return true;
        } catch (RedisException | LockReply $error) {
            if ($this->session && LockLine::isBroken($error)) {
                throw $this->lost = $this->line->lost('its session has ended', $error);
            }
            [$this->renewAt, $this->cause] = [self::now() + $this->lease / 20, $error];
            return false;
        }
    }

    private function heldSince(float $sent): void
    {
        [$this->until, $this->renewAt] = [$sent + $this->lease, $sent + $this->lease / 3];
    }

    private function giveUpAt(): float
    {
        return $this->until - $this->lease / 10;
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
