<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Predecessor;
use Serverlock\Wire\Connection;

/**
 * One try to get a lock: sent, waited for, and given up without leaving anything behind.
 *
 * It asks without waiting first, over the application's own client. Only if somebody else has the lock, it waits: in
 * the queue, by blocking on a dedicated connection in pieces, under one ID; or by polling with the portable script. PHP
 * does one thing at a time, so a manager has one wait at a time, and needs no NOTIFY.
 *
 * @internal
 */
final class Attempt
{
    /** A lost reply is noticed after one piece. $while is called between pieces. */
    private const PIECE = 2.0;
    /** A server with a faster clock ends a wait a little early. */
    private const SLACK = 0.1;

    public readonly float $began;
    private readonly string $id;
    private readonly float $deadline;
    private int $tries = 0;
    private ?Connection $connection = null;
    private bool $usesConnection;
    /** It may be in the queue, or have the lock. */
    private bool $mayStand = false;
    private bool $stood = false;
    /** No reply came to one of its copies. */
    private bool $isUnsure = false;
    private bool $isPortable = false;

    /**
     * @param null|\Closure(): bool $while called between the pieces of the wait; false ends it
     * @param bool $wereAsync whether signals are to be delivered here
     */
    public function __construct(
        private readonly Resources $resources,
        private readonly Request $request,
        private readonly ?\Closure $while = null,
        private readonly bool $wereAsync = false,
    ) {
        $this->id = (string) random_int(1, 999_999_999_999_999_999);
        $this->began = Clock::now();
        $this->deadline = $this->began + $request->options->wait;
        $this->usesConnection = $request->needsConnection();
    }

    /** @throws LockException|GivenUp */
    public function run(): Grant
    {
        try {
            $this->goOn();
            $grant = $this->get();
            if ($this->request->options->replicas > 0 || $this->request->options->fsync) {
                $connection = $this->connection ?? throw new ConnectionLost('the connection of the grant is gone');
                Replicas::confirm($connection, $this->request, $this->resources->timeout);
            }
        } catch (\Throwable $error) { // also that of a signal handler of the application
            $this->abandon();
            throw $error instanceof ReplyError || $error instanceof ConnectionLost ? $this->typed($error) : $error;
        }
        if ($this->request->options->session) {
            [$grant->connection, $this->connection] = [$this->connection, null];
        }
        $this->giveBackConnection();
        return $grant;
    }

    private function get(): Grant
    {
        while (true) {
            if (!$this->resources->module->isMissing()) {
                [$mightStand, $this->isPortable] = [$this->mayStand, false];
                try {
                    return $this->byModule();
                } catch (ReplyError $error) {
                    if (!$error->isUnknownCommand() || !$this->resources->module->miss($error)) {
                        throw $error;
                    }
                }
                $this->mayStand = $mightStand; // without the module nothing was queued
            }
            $grant = $this->poll();
            if ($grant !== null) {
                return $grant;
            }
        }
    }

    private function byModule(): Grant
    {
        if ($this->request->options->wait > 0 && !$this->request->options->session) {
            $this->connection = $this->resources->takeConnection();
        }
        if ($this->connection === null) { // else one round trip is enough
            $grant = $this->ask();
            if ($grant !== null) {
                return $grant;
            }
            if ($this->left() <= 0) {
                throw $this->over();
            }
        }
        return $this->byBlocking();
    }

    private function left(): float
    {
        return $this->deadline - Clock::now();
    }

    /** Sends it, and again after errors for which a retry may help. null: the reply was nil. */
    private function ask(float $wait = 0.0): ?Grant
    {
        while (true) {
            $sent = Clock::now();
            try {
                $this->request->bind($this->resources->client()->prefix());
                $reply = $this->exchange($this->request->acquire($this->id, $wait), $wait + $this->resources->timeout);
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
                $wait = $wait > 0 ? max(0.001, min($wait, $this->left())) : 0.0;
                continue;
            }
            $this->tries = 0;
            return $this->granted($reply, $sent);
        }
    }

    private function granted(mixed $reply, float $sent): ?Grant
    {
        if ($reply === null) {
            return null;
        }
        if ($reply === []) { // nil where a list was asked for, to phpredis
            return null;
        }
        $predecessor = null;
        if (is_array($reply) && count($reply) === 4) {
            [$reply, $overdue, $token, $owner] = $reply;
            $predecessor = $overdue === null ? null : new Predecessor($overdue / 1000, $token, $owner);
        }
        if (!is_int($reply) || $reply <= 0) {
            throw new LockBadArgumentException($this->request->name, 'the server replied ' . json_encode($reply));
        }
        return new Grant($reply, $sent, $predecessor, $this->isPortable);
    }

    /** @param list<string|int|float> $words */
    private function exchange(array $words, float $timeout): mixed
    {
        if ($this->usesConnection && ($this->connection === null || $this->connection->isClosed())) {
            $this->takeConnection();
        }
        $this->mayStand = true;
        return $this->connection === null
            ? $this->resources->call($this->request->key(), $words, $timeout)
            : $this->connection->call($words, $timeout, $this->goOn(...));
    }

    /**
     * Waits a little before the next copy, or throws if there is none. The previous copy has a reply, or its connection
     * is closed.
     */
    private function pauseAfter(ReplyError|ConnectionLost $error): void
    {
        ++$this->tries;
        if ($error instanceof ReplyError && $error->isUnknownCommand()) {
            throw $error;
        }
        $this->connection?->close(); // its server may have lost the key to another one
        $this->resources->client()->forget();
        if ($this->tries === 5) {
            $this->resources->logger?->warning('serverlock: the wait for {key} goes on: {error}', [
                'key' => $this->request->name, 'error' => $error->getMessage(), 'exception' => $error,
            ]);
        }
        $this->isUnsure = $this->isUnsure || $error instanceof ConnectionLost;
        if (!Failures::mayPass($error) || $this->left() <= 0 && $this->tries >= 2) {
            if (!$this->isUnsure && !$this->stood) {
                $this->mayStand = false; // an error reply changes nothing
            }
            throw $error;
        }
        $longest = $this->request->options->wait > 0 ? min(0.5, 0.01 * 2 ** min($this->tries, 6)) : 0.01;
        $pause = $longest * random_int(500, 1000) / 1000;
        Clock::pause($this->request->options->wait > 0 ? min($pause, $this->left()) : $pause);
        $this->goOn();
    }

    /** Blocks in pieces, to notice a lost reply and to let the application end the wait. */
    private function byBlocking(): Grant
    {
        while ($this->left() > 0) {
            $this->goOn();
            $this->usesConnection = true;
            $piece = max(0.001, min($this->left(), self::PIECE));
            $began = Clock::now();
            $grant = $this->ask($piece);
            $this->stood = true;
            if ($grant !== null) {
                if ($this->countAnew($grant)) {
                    return $grant;
                }
            } elseif (Clock::now() < $began + $piece - self::SLACK && $this->left() > self::SLACK) {
                $this->mayStand = false; // LOCK.CANCEL, or CLIENT UNBLOCK
                throw Failures::refused($this->request->name);
            }
        }
        throw $this->over();
    }

    /**
     * The grant may be as old as the command. If that is long, an EXTEND starts its lease again. Returns whether the
     * grant still holds.
     */
    private function countAnew(Grant $grant): bool
    {
        while (Clock::now() >= $grant->sent + $this->request->lease / 3) {
            $sent = Clock::now();
            try {
                $words = $this->request->extend($grant->token, $this->request->lease);
                $reply = $this->resources->call($this->request->key(), $words, $this->resources->timeout);
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
                continue;
            }
            $grant->sent = $sent;
            return $reply === 1;
        }
        return true;
    }

    /** Polls by script, without the module. null: it is time to ask for the module again. */
    private function poll(): ?Grant
    {
        $what = $this->request->needsModule();
        if ($what !== null) {
            throw new LockUnavailableException($this->request->name, "$what needs the module, which is not loaded");
        }
        [$this->isPortable, $this->usesConnection] = [true, $this->request->needsConnection()];
        $send = fn (array $words): mixed => $this->exchange($words, $this->resources->timeout);
        while (true) {
            $sent = Clock::now();
            try {
                $this->request->bind($this->resources->client()->prefix());
                $reply = $this->resources->module->portable->acquire($send, $this->request, $this->id);
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
                continue;
            }
            $this->tries = 0;
            $grant = $this->granted($reply, $sent);
            if ($grant !== null) {
                return $grant;
            }
            $this->mayStand = false;
            if ($this->left() <= 0) {
                throw $this->over();
            }
            Clock::pause(min(random_int(50, 150) / 1000, $this->left()));
            $this->goOn();
            if (!$this->resources->module->isMissing()) {
                return null;
            }
        }
    }

    /** Throws if the caller has given up, or a signal handler throws. */
    private function goOn(): void
    {
        $this->wereAsync && Signals::deliver();
        if ($this->while !== null && !($this->while)()) {
            throw new GivenUp();
        }
    }

    private function over(): LockException
    {
        $this->mayStand = false; // its place delays no other attempt
        return $this->request->options->wait > 0 ? $this->timedOut() : Failures::refused($this->request->name);
    }

    private function timedOut(): LockTimeoutException
    {
        return Failures::timedOut($this->request->name, Clock::now() - $this->began);
    }

    private function typed(ReplyError|ConnectionLost $error): LockException
    {
        $waited = $this->request->options->wait > 0 ? Clock::now() - $this->began : null;
        return Failures::typed($error, $this->request->name, $waited);
    }

    /** A session has its own connection; other attempts use the one that the manager keeps. */
    private function takeConnection(): void
    {
        $kept = $this->request->options->session ? null : $this->resources->takeConnection();
        $this->connection = $kept ?? $this->resources->open($this->request->key());
    }

    private function giveBackConnection(): void
    {
        if ($this->connection !== null && !$this->request->options->session) {
            $this->resources->giveBackConnection($this->connection);
        }
        $this->connection = null;
    }

    /** Leaves the queue, and gives back a grant whose reply was lost. */
    private function abandon(): void
    {
        if ($this->request->options->session) {
            $this->connection?->close();
        }
        $this->giveBackConnection();
        if ($this->mayStand) {
            $this->cancel();
        }
    }

    /** At once if the server answers, else by a later call of the manager. */
    private function cancel(): void
    {
        [$resources, $request, $id] = [$this->resources, $this->request, $this->id];
        $call = static fn (string $key, array $words): mixed => $resources->call($key, $words, $resources->patience());
        $settle = $this->isPortable
            ? static function () use ($resources, $request, $id, $call): void {
                $send = static fn (array $words): mixed => $call($request->key(), $words);
                $resources->module->portable->cancel($send, $request, $id);
            }
            : static function () use ($request, $id, $call): void {
                foreach ($request->sentKeys() as $key) {
                    $call($key, ['LOCK.CANCEL', $key, $id]);
                }
            };
        try {
            $settle();
        } catch (ReplyError | ConnectionLost $error) {
            if (Failures::mayPass($error)) {
                $until = Clock::now() + max($request->lease + 2, $resources->timeout);
                $resources->debts->add(Clock::now(), $until, $settle);
            }
        }
    }
}
