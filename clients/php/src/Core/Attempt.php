<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Predecessor;
use Serverlock\Wire\Line;

/**
 * One try to get a lock: sent, waited for, and given up without leaving anything behind.
 *
 * It asks without waiting first, over the application's own client. Only if somebody else has the lock, it stands in
 * line: by blocking on a line in pieces, under one ID, or by polling with the portable script. PHP does one thing at a
 * time, so a manager has one wait at a time, and needs no NOTIFY.
 *
 * @internal
 */
final class Attempt
{
    /** A reply that is lost is noticed after one piece; $while is asked between two of them. */
    private const PIECE = 2.0;
    /** A server whose clock runs a little ahead ends a wait a little early. */
    private const SLACK = 0.1;

    public readonly float $began;
    private readonly string $id;
    private readonly float $deadline;
    private int $tries = 0;
    private ?Line $line = null;
    private bool $usesLine;
    /** The server may know of it. */
    private bool $mayStand = false;
    private bool $stood = false;
    /** No reply came to one of its copies. */
    private bool $isUnsure = false;
    private bool $isPortable = false;

    /**
     * @param null|\Closure(): bool $while asked between the pieces of the wait; false ends it
     * @param bool $wereAsync whether signals are to be delivered here
     */
    public function __construct(
        private readonly Engine $engine,
        private readonly Request $request,
        private readonly ?\Closure $while = null,
        private readonly bool $wereAsync = false,
    ) {
        $this->id = (string) random_int(1, 999_999_999_999_999_999);
        $this->began = Clock::now();
        $this->deadline = $this->began + $request->options->wait;
        $this->usesLine = $request->needsLine();
    }

    /** @throws LockException|GivenUp */
    public function run(): Grant
    {
        try {
            $this->goOn();
            $grant = $this->get();
            if ($this->request->options->replicas > 0 || $this->request->options->fsync) {
                $this->confirm();
            }
        } catch (\Throwable $error) { // also what a signal handler of the application throws
            $this->abandon();
            throw $error instanceof Said || $error instanceof Broken ? $this->typed($error) : $error;
        }
        if ($this->request->options->session) {
            [$grant->line, $this->line] = [$this->line, null];
        }
        $this->giveBackLine();
        return $grant;
    }

    private function get(): Grant
    {
        while (true) {
            if (!$this->engine->isPortable()) {
                [$mightStand, $this->isPortable] = [$this->mayStand, false];
                try {
                    return $this->byModule();
                } catch (Said $error) {
                    if (!$error->isUnknownCommand() || !$this->engine->missModule($error)) {
                        throw $error;
                    }
                }
                $this->mayStand = $mightStand; // that server knows of it by script at most
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
            $this->line = $this->engine->keptLine();
        }
        if ($this->line === null) { // else one round trip is enough
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

    /** Sends it, and again after errors that may pass. null: nil. */
    private function ask(float $wait = 0.0): ?Grant
    {
        while (true) {
            $sent = Clock::now();
            try {
                $this->request->bind($this->engine->client()->prefix());
                $reply = $this->exchange($this->request->acquire($this->id, $wait), $wait + $this->engine->timeout);
            } catch (Said | Broken $error) {
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
            throw new LockBadArgumentException($this->request->name, 'the server answered ' . json_encode($reply));
        }
        return new Grant($reply, $sent, $predecessor, $this->isPortable);
    }

    /** @param list<string|int|float> $words */
    private function exchange(array $words, float $timeout): mixed
    {
        if ($this->usesLine && ($this->line === null || $this->line->isClosed())) {
            $this->takeLine();
        }
        $this->mayStand = true;
        return $this->line === null
            ? $this->engine->call($this->request->key(), $words, $timeout)
            : $this->line->call($words, $timeout, $this->goOn(...));
    }

    /**
     * Waits a little before the next copy; throws if there is to be none. The connection of the copy before is closed,
     * or has answered.
     */
    private function pauseAfter(Said|Broken $error): void
    {
        ++$this->tries;
        if ($error instanceof Said && $error->isUnknownCommand()) {
            throw $error;
        }
        $this->line?->close(); // it may lead to a server that does not have the key any more
        $this->engine->client()->forget();
        if ($this->tries === 5) {
            $this->engine->logger?->warning('serverlock: the wait for {key} goes on: {error}', [
                'key' => $this->request->name, 'error' => $error->getMessage(), 'exception' => $error,
            ]);
        }
        $this->isUnsure = $this->isUnsure || $error instanceof Broken;
        if (!Judge::mayPass($error) || $this->left() <= 0 && $this->tries >= 2) {
            if (!$this->isUnsure && !$this->stood) {
                $this->mayStand = false; // after an error nothing has changed
            }
            throw $error;
        }
        $longest = $this->request->options->wait > 0 ? min(0.5, 0.01 * 2 ** min($this->tries, 6)) : 0.01;
        $pause = $longest * random_int(500, 1000) / 1000;
        Clock::pause($this->request->options->wait > 0 ? min($pause, $this->left()) : $pause);
        $this->goOn();
    }

    /** In pieces, so that a lost reply is noticed, and the application can end the wait. */
    private function byBlocking(): Grant
    {
        while ($this->left() > 0) {
            $this->goOn();
            $this->usesLine = true;
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
                throw Judge::refused($this->request->name);
            }
        }
        throw $this->over();
    }

    /**
     * The grant may be as old as the call. If that is long, its lease counts from an EXTEND. It tells whether the grant
     * still stands.
     */
    private function countAnew(Grant $grant): bool
    {
        while (Clock::now() >= $grant->sent + $this->request->lease / 3) {
            $sent = Clock::now();
            try {
                $words = $this->request->extend($grant->token, $this->request->lease);
                $reply = $this->engine->call($this->request->key(), $words, $this->engine->timeout);
            } catch (Said | Broken $error) {
                $this->pauseAfter($error);
                continue;
            }
            $grant->sent = $sent;
            return $reply === 1;
        }
        return true;
    }

    /** Asks by script, where the module is not loaded. null: it is time to ask for the module again. */
    private function poll(): ?Grant
    {
        $what = $this->request->needsModule();
        if ($what !== null) {
            throw new LockUnavailableException($this->request->name, "$what needs the module, which is not loaded");
        }
        [$this->isPortable, $this->usesLine] = [true, $this->request->needsLine()];
        $send = fn (array $words): mixed => $this->exchange($words, $this->engine->timeout);
        while (true) {
            $sent = Clock::now();
            try {
                $this->request->bind($this->engine->client()->prefix());
                $reply = $this->engine->portable->acquire($send, $this->request, $this->id);
            } catch (Said | Broken $error) {
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
            if (!$this->engine->isPortable()) {
                return null;
            }
        }
    }

    /** Fails unless enough servers have the grant. */
    private function confirm(): void
    {
        $request = $this->request;
        $line = $this->line ?? throw new Broken('the connection of the grant is gone');
        $within = Request::milliseconds($request->options->replicasWithin);
        $patience = $request->options->replicasWithin + $this->engine->timeout;
        try {
            if ($request->options->replicas > 0) {
                $have = $line->call(['WAIT', $request->options->replicas, $within], $patience);
                $this->demand($have, $request->options->replicas, 'replicas have');
            }
            if ($request->options->fsync) {
                $have = $line->call(['WAITAOF', 1, $request->options->replicas, $within], $patience);
                $this->demand(array_sum((array) $have), 1 + $request->options->replicas, 'servers wrote to disk');
            }
        } catch (Said $error) {
            if ($error->word !== 'ERR') {
                throw $error;
            }
            $reason = "the grant cannot be confirmed: {$error->getMessage()}";
            throw new LockUnavailableException($request->name, $reason, $error);
        }
    }

    private function demand(int|float $have, int $want, string $what): void
    {
        if ($have < $want) {
            $reason = "$have of $want $what the grant; it was given back";
            throw new LockUnavailableException($this->request->name, $reason);
        }
    }

    /** Where it can be given up. */
    private function goOn(): void
    {
        $this->wereAsync && Signals::deliver();
        if ($this->while !== null && !($this->while)()) {
            throw new GivenUp();
        }
    }

    private function over(): LockException
    {
        $this->mayStand = false; // its place holds nobody up
        return $this->request->options->wait > 0 ? $this->timedOut() : Judge::refused($this->request->name);
    }

    private function timedOut(): LockTimeoutException
    {
        return Judge::timedOut($this->request->name, Clock::now() - $this->began);
    }

    private function typed(Said|Broken $error): LockException
    {
        $waited = $this->request->options->wait > 0 ? Clock::now() - $this->began : null;
        return Judge::typed($error, $this->request->name, $waited);
    }

    /** A session has a line of its own; otherwise it is the one that the manager keeps. */
    private function takeLine(): void
    {
        $kept = $this->request->options->session ? null : $this->engine->keptLine();
        $this->line = $kept ?? $this->engine->dial($this->request->key());
    }

    private function giveBackLine(): void
    {
        if ($this->line !== null && !$this->request->options->session) {
            $this->engine->giveBackLine($this->line);
        }
        $this->line = null;
    }

    /** Leaves the line, and gives back what was granted without its being known. */
    private function abandon(): void
    {
        if ($this->request->options->session) {
            $this->line?->close();
        }
        $this->giveBackLine();
        if ($this->mayStand) {
            $this->engine->cancel($this->request, $this->id, $this->isPortable);
        }
    }
}
