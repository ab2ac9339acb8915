<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Psr\Log\LoggerInterface;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Wire\Client;
use Serverlock\Wire\Line;
use Serverlock\Wire\Own;

/**
 * What a manager keeps between calls: the client, the one line for waits, what is left to do, and in which scopes the
 * caller is.
 *
 * @internal
 */
final class Engine
{
    /** So long a new attempt does not ask for a module that was not loaded. */
    private const ASK_FOR_MODULE = 5.0;

    public readonly Portable $portable;
    public readonly Keeper $keeper;
    public bool $isClosed = false;
    public int $pid;
    private ?Line $line = null;
    private float $missedUntil = -INF;
    /** @var list<Hold> */
    private array $scopes = [];
    /** @var list<array{float, float, \Closure(): void}> not before, not after, what */
    private array $debts = [];
    /** @var list<mixed> what belongs to the parent process */
    private array $inherited = [];

    public function __construct(
        private Client $client,
        public readonly float $timeout,
        private readonly bool $mayBeScript,
        public readonly ?Hooks $hooks,
        public readonly ?LoggerInterface $logger,
        private bool $mayWarn = true,
    ) {
        $this->pid = (int) getmypid();
        $this->portable = new Portable();
        $this->keeper = new Keeper($this);
    }

    /**
     * Signals are handled again when all of the grant is built: what a handler throws then gives it back. After that
     * nothing is done but to return it.
     *
     * @param null|\Closure(): bool $while
     */
    public function acquire(Request $request, ?\Closure $while = null): Held
    {
        if ($this->isClosed) {
            throw new LockMisuseException($request->name, 'its Locks are closed');
        }
        $this->client();
        if ($this->scopes) {
            $this->refuseAgain($request);
        }
        if ($this->debts) {
            $this->settle();
        }
        $wereAsync = Signals::defer();
        $attempt = new Attempt($this, $request, $while, $wereAsync);
        try {
            $hold = new Hold($request, $attempt->run(), $attempt->began, $this->pid);
            $held = new Held($this, $hold);
            if ($this->hooks !== null) {
                $this->tell($this->hooks->granted, $request->name, $held->waited);
            }
        } catch (LockException $error) {
            $this->tell($this->hooks?->refused, $request->name, Clock::now() - $attempt->began, $error);
            throw $error;
        } finally {
            $wereAsync && !isset($held) && Signals::restore();
        }
        try {
            $wereAsync && Signals::restore();
            return $held; // in here: PHP handles signals after a jump, and the end of a try is one
        } catch (\Throwable $error) { // nobody will get to see the grant
            try {
                $this->keeper->release($hold); // which puts signals off itself
            } catch (LockException) {
                // what ended the attempt is the error to tell
            } catch (\Throwable $second) { // of another signal, which came before it did
                $hold->isReleased || $this->keeper->release($hold);
                throw $second;
            }
            throw $error;
        }
    }

    /** Calls a hook. The work of the application does not depend on it. */
    public function tell(?\Closure $hook, mixed ...$args): void
    {
        if ($hook === null) {
            return;
        }
        try {
            $hook(...$args);
        } catch (\Throwable $error) {
            $context = ['error' => $error->getMessage(), 'exception' => $error];
            $this->logger?->error('serverlock: a hook failed: {error}', $context);
        }
    }

    // Connections

    /**
     * The application's client; in a child process, whose connections belong to the parent, one of its own. Each way to
     * a server asks for it first, or has looked at the process ID of its hold.
     */
    public function client(): Client
    {
        if ($this->pid !== getmypid()) {
            // They are kept, so that nobody closes them here: TLS would say good-bye in the parent's name.
            array_push($this->inherited, $this->client, $this->line, $this->debts);
            $this->client = new Own($this->client->known(), $this->client->prefix(), $this->client->isCluster());
            [$this->pid, $this->line, $this->debts, $this->scopes] = [(int) getmypid(), null, [], []];
        }
        return $this->client;
    }

    /**
     * What a signal handler throws would leave the reply on the connection, to be read as that to the next command: it
     * has to wait.
     *
     * @param list<string|int|float> $words
     * @throws Said|Broken
     */
    public function call(string $key, array $words, float $timeout): mixed
    {
        $wereAsync = Signals::defer();
        try {
            return $this->client->call($key, $words, $timeout);
        } finally {
            $wereAsync && Signals::restore();
        }
    }

    public function dial(string $key): Line
    {
        return Line::dial($this->client->address($key, $this->timeout), $this->timeout);
    }

    /**
     * The line for waits, if it is open. While it is taken it is not here: a signal handler that waits for another lock
     * gets another line.
     */
    public function keptLine(): ?Line
    {
        [$line, $this->line] = [$this->line, null];
        return $line?->isOpen() ? $line : null;
    }

    /** In a cluster it may lead to the wrong server the next time, so it is not kept. */
    public function giveBackLine(Line $line): void
    {
        if ($this->line === null && !$this->isClosed && !$this->client->isCluster()) {
            $this->line = $line;
        } else {
            $line->close();
        }
    }

    public function close(): void
    {
        $this->isClosed = true;
        $this->client();
        $this->line?->close();
        $this->line = null;
    }

    // What is left to do

    /** Later calls of the manager do it, from one time to another: PHP does nothing by itself. */
    public function owe(float $from, float $until, \Closure $what): void
    {
        $this->debts[] = [$from, $until, $what];
    }

    public function settle(): void
    {
        [$debts, $this->debts] = [$this->debts, []];
        foreach ($debts as [$from, $until, $what]) {
            $now = Clock::now();
            if ($now >= $until) {
                continue;
            }
            if ($now < $from) {
                $this->debts[] = [$from, $until, $what];
                continue;
            }
            try {
                $what();
            } catch (Said | Broken $error) {
                if (Judge::mayPass($error)) {
                    $this->debts[] = [Clock::now() + 1, $until, $what];
                }
            }
        }
    }

    /** How long a reply may take to what nobody waits for. */
    public function patience(): float
    {
        return min(1.0, $this->timeout);
    }

    /** Ends an attempt that failed: at once if that can be done. */
    public function cancel(Request $request, string $id, bool $isPortable): void
    {
        $settle = function () use ($request, $id, $isPortable): void {
            if ($isPortable) {
                $send = fn (array $words): mixed => $this->call($request->key(), $words, $this->patience());
                $this->portable->cancel($send, $request, $id);
                return;
            }
            foreach ($request->sentKeys() as $key) {
                $this->call($key, ['LOCK.CANCEL', $key, $id], $this->patience());
            }
        };
        try {
            $settle();
        } catch (Said | Broken $error) {
            if (Judge::mayPass($error)) {
                $this->owe(Clock::now(), Clock::now() + max($request->lease + 2, $this->timeout), $settle);
            }
        }
    }

    // The module

    /** Whether to ask with the scripts, because the server did not know LOCK.* a moment ago. */
    public function isPortable(): bool
    {
        return Clock::now() < $this->missedUntil;
    }

    /** Whether to go on with the scripts. */
    public function missModule(Said $error): bool
    {
        if (!$this->mayBeScript) {
            return false;
        }
        if ($this->mayWarn) {
            $this->mayWarn = false;
            $text = 'serverlock: the server has no LOCK.*; locks work by script, without order among waiters: ';
            $this->logger === null
                ? error_log($text . $error->getMessage()) // where PHP writes its own warnings; it throws nothing
                : $this->logger->warning("$text{error}", ['error' => $error->getMessage()]);
        }
        $this->missedUntil = Clock::now() + self::ASK_FOR_MODULE;
        return true;
    }

    /** The module, or the script, is gone: whether to send the same by script, for the value is the same. */
    public function missed(Hold $hold, Said $error): bool
    {
        if ($error->word === 'NOSCRIPT' && $hold->isPortable) {
            $this->portable->missed();
            return true;
        }
        if (!$error->isUnknownCommand() || $hold->isPortable || $hold->request->needsModule() !== null) {
            return false;
        }
        return $hold->isPortable = $this->mayBeScript;
    }

    // Scopes

    public function enter(Hold $hold): void
    {
        $this->scopes[] = $hold;
    }

    public function leave(Hold $hold): void
    {
        $this->scopes = array_values(array_filter($this->scopes, static fn (Hold $other): bool => $other !== $hold));
    }

    /** A caller that asks for a lock within its own scope would wait for itself. */
    private function refuseAgain(Request $request): void
    {
        foreach ($this->scopes as $hold) {
            $excludes = $hold->request->isExclusive() || $request->isExclusive();
            if ($excludes && array_intersect($hold->request->keys, $request->keys) && $this->keeper->isHeld($hold)) {
                $reason = 'this caller already holds it, in a scope around this call';
                throw new LockMisuseException($request->name, $reason);
            }
        }
    }
}
