<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\End;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;

/**
 * Releases locks: at once, in a later call to the manager, or once others may have them (atLeast).
 *
 * @internal
 */
final class Release
{
    private const LATER = '{key} is released later, or ends with its lease: {error}';

    public function __construct(private readonly Resources $resources, private readonly Keeper $keeper)
    {
    }

    /**
     * Returns whether the lock was held to the end. Signals are handled before or after it.
     *
     * @throws LockException
     */
    public function release(Hold $hold): bool
    {
        return $this->leave($hold, function (bool $wasLost) use ($hold): bool {
            $until = $hold->granted + $hold->request->options->atLeast;
            return $until > $this->resources->now() && !$wasLost ? $this->later($hold, $until) : $this->now($hold);
        });
    }

    /**
     * Ends a hold in the given way, unless the server has replied that its grant has ended. Returns whether the lock
     * was held to the end. Signals are handled before or after it.
     *
     * @param \Closure(bool): bool $end takes whether the lock was lost; returns whether it was held to the end
     * @throws LockException
     */
    public function leave(Hold $hold, \Closure $end): bool
    {
        if (!$hold->isOfThisProcess()) {
            return false; // it belongs to the parent
        }
        if ($hold->isReleased) {
            throw new LockMisuseException($hold->request->name, 'it was released before');
        }
        $wasAsync = Signals::defer();
        try {
            return $this->once($hold, $end);
        } finally {
            $wasAsync && Signals::restore();
        }
    }

    /** @param \Closure(bool): bool $end */
    private function once(Hold $hold, \Closure $end): bool
    {
        $lost = $this->keeper->noticed($hold);
        $hold->isReleased = true;
        $isHeld = false;
        try {
            if (!$hold->isGone) {
                $isHeld = $end($lost !== null);
            }
        } finally {
            $hold->leaveSession();
            $isHeld = $isHeld && $lost === null;
            if ($this->resources->hooks !== null) {
                $held = $this->resources->now() - $hold->granted;
                $this->resources->notify($this->resources->hooks->released, $hold->request->name, $held, $isHeld);
            }
            $isHeld
                ? $hold->watching?->ended(End::Released)
                : $hold->watching?->ended(End::Lost, $this->keeper->over($hold));
        }
        $this->resources->debts->settle();
        return $isHeld;
    }

    /**
     * Retries until a call's time-out; then later calls to the manager do. Signals are deferred.
     *
     * @throws LockException
     */
    public function now(Hold $hold): bool
    {
        $lostAt = $hold->lostAt();
        $end = min($this->resources->now() + $this->resources->timeout, $lostAt);
        for ($tries = 1;; ++$tries) {
            try {
                $reply = $this->send($hold, $this->resources->timeout);
                // A second RELEASE may find that the first had been carried out.
                $mayBeSecond = $reply === 0 && $tries > 1 && $this->resources->now() < $lostAt;
                return $hold->request->wasHeld($reply) || $mayBeSecond;
            } catch (ReplyError | ConnectionLost $error) {
                $this->resources->client()->forget();
                if (!Failures::isTransient($error)) {
                    throw Failures::typed($error, $hold->request->name);
                }
                if ($this->resources->now() >= $end) {
                    $this->owe($hold, $this->resources->now() + 1, $hold->sent + $hold->lease);
                    $this->resources->warn(self::LATER, $hold, $error);
                    return $this->resources->now() < $lostAt;
                }
                $this->resources->pause(min(0.02 * $tries, 0.2));
            }
        }
    }

    /** Sets the lease to end at that time. A later call to the manager releases the lock, or it expires. */
    private function later(Hold $hold, float $until): bool
    {
        $this->owe($hold, $until, $until + 60);
        $call = fn (Calls $calls, \Closure $send): mixed
            => $calls->extend($send, $hold->request, $hold->token, max(0.001, $until - $this->resources->now()));
        for ($tries = 1;; ++$tries) {
            try {
                return $this->resources->ask($hold, $call, $this->resources->timeout) === 1;
            } catch (ReplyError | ConnectionLost $error) {
                if (!Failures::isTransient($error)) {
                    throw Failures::typed($error, $hold->request->name);
                }
                $this->resources->client()->forget();
                if ($tries === 2) {
                    $this->resources->warn(self::LATER, $hold, $error);
                    return true; // as far as anybody knows
                }
            }
        }
    }

    private function owe(Hold $hold, float $from, float $until): void
    {
        $this->resources->debts->add($from, $until, function () use ($hold): void {
            $this->send($hold, $this->resources->patience());
        });
    }

    private function send(Hold $hold, float $timeout): mixed
    {
        $call = static fn (Calls $calls, \Closure $send): mixed
            => $calls->release($send, $hold->request, $hold->token, $hold->result);
        return $this->resources->ask($hold, $call, $timeout);
    }
}
