<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;

/**
 * What is done with a lock that is held: looked at, renewed, verified, released. A loss is noticed here, once.
 *
 * @internal
 */
final class Keeper
{
    private const FENCED = <<<'LUA'
        if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end
        local reply = redis.call(unpack(ARGV, 2))
        return {type(reply) == 'table' and reply.ok or reply}
        LUA;

    public function __construct(private readonly Engine $engine)
    {
    }

    /** Why it is lost; null while it is held, and after it was released in time. It asks nobody. */
    public function lost(Hold $hold): ?LockLostException
    {
        if ($hold->lost !== null || $hold->isReleased) {
            return $hold->lost;
        }
        if (!$hold->isOfThisProcess()) {
            return new LockLostException($hold->request->name, 'it belongs to the parent process');
        }
        return $this->noticed($hold);
    }

    private function noticed(Hold $hold): ?LockLostException
    {
        if ($hold->lost !== null) {
            return $hold->lost;
        }
        if ($hold->line !== null && !$hold->line->isOpen()) {
            $this->lose($hold, 'the connection of its session has ended', isGone: true);
        } elseif (Clock::now() >= $hold->lostAt()) {
            $this->lose($hold, 'its lease was not renewed in time');
        }
        return $hold->lost;
    }

    public function isHeld(Hold $hold): bool
    {
        return !$hold->isReleased && $this->lost($hold) === null;
    }

    public function left(Hold $hold): float
    {
        return $this->isHeld($hold) ? max(0.0, $hold->lostAt() - Clock::now()) : 0.0;
    }

    /** @throws LockLostException */
    public function demand(Hold $hold): void
    {
        $lost = $this->lost($hold);
        if ($lost !== null) {
            throw $lost;
        }
        if ($hold->isReleased) {
            throw new LockLostException($hold->request->name, 'it was released');
        }
    }

    /**
     * Renews the lease if that is due. What fails is tried again later, for as long as the lease lasts.
     *
     * @throws LockLostException
     */
    public function check(Hold $hold): void
    {
        $this->demand($hold);
        $sent = Clock::now();
        if ($sent < $hold->renewAt || !$hold->mayRenew()) {
            return;
        }
        $hold->renewAt = $sent + $hold->lease / 20;
        $lease = $hold->request->lease;
        $timeout = max(0.001, min($this->engine->timeout, $hold->lostAt() - $sent));
        $hold->extending($sent, $lease);
        try {
            $reply = $this->call($hold, fn (): array => $this->extendWords($hold, $lease), $timeout);
            $reply === 1 ? $hold->extended($sent, $lease) : $this->taken($hold);
        } catch (Said | Broken $error) {
            $this->engine->client()->forget();
            $this->warn('renewing {key} failed: {error}', $hold, $error);
            $hold->renewAt = Clock::now() + $hold->lease / 20;
        }
        $this->demand($hold);
    }

    /** @throws LockException */
    public function extend(Hold $hold, ?float $lease): void
    {
        $lease ??= $hold->request->lease;
        $fault = $hold->request->faultOfLease($lease);
        if ($fault !== null) {
            throw $fault;
        }
        $this->demand($hold);
        for ($tries = 1;; ++$tries) {
            $sent = Clock::now();
            $hold->extending($sent, $lease);
            try {
                $reply = $this->call($hold, fn (): array => $this->extendWords($hold, $lease), $this->engine->timeout);
                break;
            } catch (Said | Broken $error) {
                $this->passOrThrow($hold, $error, $tries);
            }
        }
        $reply === 1 ? $hold->extended($sent, $lease) : $this->taken($hold);
        $this->demand($hold);
    }

    /**
     * Asks the server: the seconds that are left.
     *
     * @throws LockException
     */
    public function verify(Hold $hold): float
    {
        $this->demand($hold);
        $least = PHP_INT_MAX;
        foreach ($hold->request->sentKeys() as $key) {
            $words = fn (): array => $hold->isPortable
                ? $this->engine->portable->words($hold->request, 'lock_check', $hold->token)
                : ['LOCK.CHECK', $key, $hold->token];
            for ($tries = 1;; ++$tries) {
                try {
                    $least = min($least, (int) $this->call($hold, $words, $this->engine->timeout, $key));
                    break;
                } catch (Said | Broken $error) {
                    $this->passOrThrow($hold, $error, $tries);
                }
            }
        }
        if ($least <= 0) {
            $this->taken($hold);
        }
        $this->demand($hold);
        return min($least / 1000, $this->left($hold));
    }

    /**
     * Runs one command only if the lock is held on the server.
     *
     * @param list<string|int|float> $args
     * @throws LockException
     */
    public function fenced(Hold $hold, string $command, string $key, array $args): mixed
    {
        $this->demand($hold);
        $key = $this->engine->client()->prefix() . $key;
        $words = fn (): array => [
            'EVAL', $hold->isPortable ? Portable::FENCED : self::FENCED, 2, $hold->request->key(), $key, $hold->token,
            $command, $key, ...$args,
        ];
        try {
            $reply = $this->call($hold, $words, $this->engine->timeout);
        } catch (Said | Broken $error) { // it may have been carried out: no second try
            $this->engine->client()->forget();
            throw Judge::typed($error, $hold->request->name);
        }
        if ($reply === ['LOCK.LOST']) {
            $this->taken($hold);
            $this->demand($hold);
        }
        return is_array($reply) ? $reply[0] ?? null : $reply;
    }

    /**
     * Whether the lock was held to the end. Signals are handled before or after it.
     *
     * @throws LockException
     */
    public function release(Hold $hold): bool
    {
        if (!$hold->isOfThisProcess()) {
            return false; // it is the parent's
        }
        if ($hold->isReleased) {
            throw new LockMisuseException($hold->request->name, 'it was released before');
        }
        $wereAsync = Signals::defer();
        try {
            return $this->releaseOnce($hold);
        } finally {
            $wereAsync && Signals::restore();
        }
    }

    private function releaseOnce(Hold $hold): bool
    {
        $lost = $this->noticed($hold);
        $hold->isReleased = true;
        $isHeld = false;
        try {
            if (!$hold->isGone) {
                $wait = $hold->granted + $hold->request->options->atLeast - Clock::now();
                $isHeld = $wait > 0 && $lost === null ? $this->releaseLater($hold, $wait) : $this->releaseNow($hold);
            }
        } finally {
            $hold->line?->close();
            $isHeld = $isHeld && $lost === null;
            if ($this->engine->hooks !== null) {
                $held = Clock::now() - $hold->granted;
                $this->engine->tell($this->engine->hooks->released, $hold->request->name, $held, $isHeld);
            }
        }
        $this->engine->settle();
        return $isHeld;
    }

    /** The error of a scope whose lock was not held to its end. */
    public function over(Hold $hold): LockLostException
    {
        return $this->lost($hold)
            ?? new LockLostException($hold->request->name, 'lost: its grant was over before it was released');
    }

    /** Sends it until it is answered, for as long as a call may take; then later calls of the manager do. */
    private function releaseNow(Hold $hold): bool
    {
        $lostAt = $hold->lostAt();
        $end = min(Clock::now() + $this->engine->timeout, $lostAt);
        for ($tries = 1;; ++$tries) {
            try {
                $reply = $this->call($hold, fn (): array => $this->releaseWords($hold), $this->engine->timeout);
                // Sent twice, it may find its own work done.
                return $hold->request->wasHeld($reply) || $reply === 0 && $tries > 1 && Clock::now() < $lostAt;
            } catch (Said | Broken $error) {
                $this->engine->client()->forget();
                if (!Judge::mayPass($error)) {
                    throw Judge::typed($error, $hold->request->name);
                }
                if (Clock::now() >= $end) {
                    $this->oweRelease($hold, Clock::now() + 1, $hold->sent + $hold->lease);
                    $this->warn('{key} is released later, or ends with its lease: {error}', $hold, $error);
                    return Clock::now() < $lostAt;
                }
                Clock::pause(min(0.02 * $tries, 0.2));
            }
        }
    }

    /** Cuts the lease to what is left of atLeast; a later call of the manager releases it, or it ends by itself. */
    private function releaseLater(Hold $hold, float $wait): bool
    {
        try {
            $reply = $this->call($hold, fn (): array => $this->extendWords($hold, $wait), $this->engine->timeout);
        } catch (Said | Broken $error) {
            if (!Judge::mayPass($error)) {
                throw Judge::typed($error, $hold->request->name);
            }
            $this->engine->client()->forget();
            $this->warn('{key} is released later, or ends with its lease: {error}', $hold, $error);
            $reply = 1; // as far as anybody knows
        }
        $at = Clock::now() + $wait;
        $this->oweRelease($hold, $at, $at + 60);
        return $reply === 1;
    }

    private function oweRelease(Hold $hold, float $from, float $until): void
    {
        $this->engine->owe($from, $until, function () use ($hold): void {
            $this->call($hold, fn (): array => $this->releaseWords($hold), $this->engine->patience());
        });
    }

    /**
     * Sends a command for a lock that is held; again if the module, or the script, is gone.
     *
     * @param \Closure(): list<string|int|float> $words
     * @throws Said|Broken
     */
    private function call(Hold $hold, \Closure $words, float $timeout, ?string $key = null): mixed
    {
        for ($tries = 1;; ++$tries) {
            try {
                return $this->engine->call($key ?? $hold->request->key(), $words(), $timeout);
            } catch (Said $error) {
                if ($tries === 3 || !$this->engine->missed($hold, $error)) {
                    throw $error;
                }
            }
        }
    }

    /** The second try of what may be sent twice; throws if there is to be none. */
    private function passOrThrow(Hold $hold, Said|Broken $error, int $tries): void
    {
        $this->engine->client()->forget();
        if ($tries >= 2 || !Judge::mayPass($error)) {
            throw Judge::typed($error, $hold->request->name);
        }
    }

    /** The server does not know the grant any more. */
    private function taken(Hold $hold): void
    {
        $this->lose($hold, 'somebody has taken it away', isGone: true);
    }

    private function lose(Hold $hold, string $why, bool $isGone = false): void
    {
        $hold->isGone = $isGone;
        $hold->lost = new LockLostException($hold->request->name, "lost: $why");
        $this->engine->logger?->warning('serverlock: {error}', ['error' => $hold->lost->getMessage()]);
        $held = Clock::now() - $hold->granted;
        $this->engine->tell($this->engine->hooks?->lost, $hold->request->name, $held, $hold->lost);
    }

    private function warn(string $text, Hold $hold, \Throwable $error): void
    {
        $context = ['key' => $hold->request->name, 'error' => $error->getMessage(), 'exception' => $error];
        $this->engine->logger?->warning("serverlock: $text", $context);
    }

    /** @return list<string|int|float> */
    private function extendWords(Hold $hold, float $lease): array
    {
        if (!$hold->isPortable) {
            return $hold->request->extend($hold->token, $lease);
        }
        $ms = Request::milliseconds($lease);
        return $this->engine->portable->words($hold->request, 'lock_extend', $hold->token, 'PX', $ms);
    }

    /** @return list<string|int|float> */
    private function releaseWords(Hold $hold): array
    {
        return $hold->isPortable
            ? $this->engine->portable->words($hold->request, 'lock_release', $hold->token)
            : $hold->request->release($hold->token);
    }
}
