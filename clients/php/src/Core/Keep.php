<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;

/**
 * Ends the hold of a tick that has run. Its lock stays until the window ends, so nobody else runs the tick.
 *
 * @internal
 */
final class Keep
{
    /** An EXTEND's lease counts from when the server runs it, so one that takes longer than this is sent again. */
    public const LATE = 0.25;
    private const COPIES = 3;
    /** A lease that ends earlier than it should by more than this, or later by more than MOST_LATE, is corrected. */
    private const MOST_EARLY = 0.002;
    private const MOST_LATE = 0.1;
    /** After this time, two clocks may have drifted so far apart that the server's is read again when work ends. */
    private const DRIFTS = 600.0;
    /** The pause before a later call to the manager tries again. */
    private const PAUSE = 1.0;

    public function __construct(
        private readonly Resources $resources,
        private readonly Keeper $keeper,
        private readonly ServerClock $clock,
        private readonly Release $release,
    ) {
    }

    /**
     * Ends the hold, and returns whether it was held to the end. The lock is released if it was lost, or if the time
     * until which it would be kept has passed. Signals are handled before or after it.
     *
     * @throws LockException
     */
    public function keep(Hold $hold, TickRun $run): bool
    {
        return $this->release->leave($hold, function (bool $wasLost) use ($hold, $run): bool {
            if ($wasLost) {
                return $this->release->now($hold);
            }
            $this->refresh($hold, $run);
            $until = $run->leaseEnds();
            return match (true) {
                $this->resources->now() >= $until => $this->release->now($hold),
                $run->isLong && self::isExact($hold, $run) && !$hold->isUnsure() => true,
                default => $this->now($hold, $until),
            };
        });
    }

    /**
     * Sets the end of a long lease again if it is off, because of the tick or the margin, or because the server may
     * have counted the lease from too late a moment.
     *
     * @throws LockException
     */
    public function correct(Hold $hold, TickRun $run): void
    {
        $took = $hold->granted - $hold->sent;
        for ($copies = 1; $copies <= self::COPIES && !($took <= self::LATE && self::isExact($hold, $run)); ++$copies) {
            $sent = $this->resources->now();
            if ($sent >= $run->leaseEnds()) {
                throw new LockLostException($hold->request->name, 'lost: the window of its tick has ended');
            }
            $this->keeper->extend($hold, max(0.001, $run->leaseEnds() - $sent));
            $took = $this->resources->now() - $sent;
        }
    }

    private static function isExact(Hold $hold, TickRun $run): bool
    {
        $late = $hold->sent + $hold->lease - $run->leaseEnds();
        return $late >= -self::MOST_EARLY && $late <= self::MOST_LATE;
    }

    private function refresh(Hold $hold, TickRun $run): void
    {
        $isOld = $this->resources->now() > $run->clock->asked + self::DRIFTS || !$run->clock->isGood();
        if ($run->isLong || !$isOld) {
            return;
        }
        try {
            $run->clock = $this->clock->read($hold->request->key());
        } catch (ReplyError | ConnectionLost) {
            // the old estimate is used
        }
    }

    /**
     * Tries at least twice, and until a call's time-out. Then later calls to the manager do.
     *
     * The server may still run a renewal whose reply was lost, which would shorten the lease. Nothing runs in the
     * background, so this waits until that can no longer happen, and then sends a last copy.
     */
    private function now(Hold $hold, float $until): bool
    {
        $end = $this->resources->now() + $this->resources->timeout;
        for ($tries = 1;; ++$tries) {
            try {
                $reply = $this->extend($hold, $until, $this->resources->timeout);
                if ($reply !== 1 || !$hold->isUnsure()) {
                    break;
                }
                while ($hold->isUnsure()) {
                    $this->resources->pause($hold->unsureUntil - $this->resources->now());
                }
            } catch (ReplyError | ConnectionLost $error) {
                $this->resources->client()->forget();
                if (!Failures::isTransient($error)) {
                    throw Failures::typed($error, $hold->request->name);
                }
                if ($tries >= 2 && $this->resources->now() >= $end) {
                    $this->owe($hold, $this->resources->now() + self::PAUSE, $until);
                    $text = '{key} is kept for its period later, or ends with its lease: {error}';
                    $this->resources->warn($text, $hold, $error);
                    return true; // as far as anybody knows
                }
                $this->resources->pause(min(0.02 * $tries, 0.2));
            }
        }
        if ($reply === 1 && isset($error)) { // a copy that the server runs late lengthens the lease by that time
            $this->owe($hold, $this->resources->now() + Hold::STILL_RUNS, $until);
        }
        return $reply === 1;
    }

    private function owe(Hold $hold, float $from, float $until): void
    {
        $this->resources->debts->add($from, $until, function () use ($hold, $until): void {
            if ($this->extend($hold, $until, $this->resources->patience()) === 0) {
                $context = ['key' => $hold->request->name];
                $text = 'serverlock: {key} expired before it could be kept for its period';
                $this->resources->logger?->warning($text, $context);
            }
        });
    }

    /** Sets a lease that ends then. */
    private function extend(Hold $hold, float $until, float $timeout): mixed
    {
        for ($copies = 1;; ++$copies) {
            $sent = $this->resources->now();
            $lease = max(1, ceil(($until - $sent) * 1000)) / 1000;
            $reply = $this->keeper->sendLease($hold, $lease, $timeout);
            if ($reply !== 1 || $this->resources->now() <= $sent + self::LATE || $copies === self::COPIES) {
                return $reply;
            }
        }
    }
}
