<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\End;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;

/**
 * Checks, renews and verifies locks that are held, and notices each loss once.
 *
 * @internal
 */
final class Keeper
{
    public function __construct(private readonly Resources $resources)
    {
    }

    /** Why the lock was lost; null while it is held, and after a release in time. Sends no command. */
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

    public function noticed(Hold $hold): ?LockLostException
    {
        if ($hold->lost !== null) {
            return $hold->lost;
        }
        if ($hold->session !== null && !$hold->session->isOpen()) {
            $this->loseAll($hold->session);
        } elseif ($this->resources->now() >= $hold->lostAt()) {
            $this->lose($hold, 'its lease was not renewed in time');
        }
        return $hold->lost;
    }

    /** Reports that the locks of a session have ended with its connection. */
    public function loseAll(Session $session): void
    {
        foreach ($session->holds() as $hold) {
            if ($hold instanceof Hold && $hold->lost === null) {
                $this->lose($hold, 'the connection of its session has closed', isGone: true);
            }
        }
    }

    public function isHeld(Hold $hold): bool
    {
        return !$hold->isReleased && $this->lost($hold) === null;
    }

    public function left(Hold $hold): float
    {
        return $this->isHeld($hold) ? max(0.0, $hold->lostAt() - $this->resources->now()) : 0.0;
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
     * Renews the lease if that is due. After a failure, later checks try again until the lease ends.
     *
     * @throws LockLostException
     */
    public function check(Hold $hold): void
    {
        $this->demand($hold);
        $sent = $this->resources->now();
        if ($sent < $hold->renewAt || !$hold->mayRenew()) {
            return;
        }
        $hold->renewAt = $sent + $hold->lease / 20;
        $lease = $hold->request->lease;
        $timeout = max(0.001, min($this->resources->timeout, $hold->lostAt() - $sent));
        $hold->extending($sent, $lease);
        try {
            $reply = $this->sendLease($hold, $lease, $timeout);
            $reply === 1 ? $hold->extended($sent, $lease) : $this->taken($hold);
        } catch (ReplyError | ConnectionLost $error) {
            $error instanceof ConnectionLost && $hold->unsure();
            $this->resources->client()->forget();
            $this->resources->warn('renewing {key} failed: {error}', $hold, $error);
            $hold->renewAt = $this->resources->now() + $hold->lease / 20;
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
            $sent = $this->resources->now();
            $hold->extending($sent, $lease);
            try {
                $reply = $this->sendLease($hold, $lease, $this->resources->timeout);
                break;
            } catch (ReplyError | ConnectionLost $error) {
                $error instanceof ConnectionLost && $hold->unsure();
                $this->passOrThrow($hold, $error, $tries);
            }
        }
        $reply === 1 ? $hold->extended($sent, $lease) : $this->taken($hold);
        $this->demand($hold);
    }

    /**
     * Asks the server how many seconds are left.
     *
     * @throws LockException
     */
    public function verify(Hold $hold): float
    {
        $this->demand($hold);
        $least = PHP_INT_MAX;
        foreach (array_keys($hold->request->sentKeys()) as $at) {
            $call = static fn (Calls $calls, \Closure $send): mixed
                => $calls->check($send, $hold->request, $hold->token, $at);
            for ($tries = 1;; ++$tries) {
                try {
                    $least = min($least, (int) $this->resources->ask($hold, $call, $this->resources->timeout));
                    break;
                } catch (ReplyError | ConnectionLost $error) {
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
        $key = $this->resources->client()->prefix() . $key;
        $call = static fn (Calls $calls, \Closure $send): mixed => $send([
            'EVAL', $calls->fenced(), 2, $hold->request->key(), $key, $hold->token, $command, $key, ...$args,
        ]);
        try {
            $reply = $this->resources->ask($hold, $call, $this->resources->timeout);
        } catch (ReplyError | ConnectionLost $error) { // no retry, because the server may have run it
            $this->resources->client()->forget();
            throw Failures::typed($error, $hold->request->name);
        }
        if ($reply === ['LOCK.LOST']) {
            $this->taken($hold);
            $this->demand($hold);
        }
        return is_array($reply) ? $reply[0] ?? null : $reply;
    }

    /** The error for a scope whose lock was not held to the end. */
    public function over(Hold $hold): LockLostException
    {
        return $this->lost($hold)
            ?? new LockLostException($hold->request->name, 'lost: its grant had ended before it was released');
    }

    /**
     * Sends an EXTEND, and returns the reply.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function sendLease(Hold $hold, float $lease, float $timeout): mixed
    {
        $call = static fn (Calls $calls, \Closure $send): mixed
            => $calls->extend($send, $hold->request, $hold->token, $lease);
        return $this->resources->ask($hold, $call, $timeout);
    }

    /** Returns if the command should be sent a second time, and otherwise throws. */
    private function passOrThrow(Hold $hold, ReplyError|ConnectionLost $error, int $tries): void
    {
        $this->resources->client()->forget();
        if ($tries >= 2 || !Failures::isTransient($error)) {
            throw Failures::typed($error, $hold->request->name);
        }
    }

    /** Records that the server no longer knows the grant. */
    private function taken(Hold $hold): void
    {
        $this->lose($hold, 'somebody else has taken it', isGone: true);
    }

    private function lose(Hold $hold, string $why, bool $isGone = false): void
    {
        $hold->isGone = $isGone;
        $hold->lost = new LockLostException($hold->request->name, "lost: $why");
        $this->resources->logger?->warning('serverlock: {error}', ['error' => $hold->lost->getMessage()]);
        $held = $this->resources->now() - $hold->granted;
        $this->resources->notify($this->resources->hooks?->lost, $hold->request->name, $held, $hold->lost);
        $hold->watching?->ended(End::Lost, $hold->lost);
    }
}
