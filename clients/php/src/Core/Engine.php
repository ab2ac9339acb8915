<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Psr\Log\LoggerInterface;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Held;
use Serverlock\HeldOnce;
use Serverlock\Hooks;
use Serverlock\Wire\Client;

/**
 * A manager's work: it acquires locks, and keeps track of what its caller holds where that matters: in scopes, and
 * reentrant locks.
 *
 * @internal
 */
final class Engine
{
    public readonly Resources $resources;
    public readonly Keeper $keeper;
    public readonly ServerClock $serverClock;
    public readonly Keep $keep;
    private readonly Release $release;
    /** @var array<int, \WeakReference<Held>> what the caller holds in a scope, or gets again */
    private array $scopes = [];

    public function __construct(
        Client $client,
        float $timeout,
        bool $mayBeScript,
        ?Hooks $hooks,
        ?LoggerInterface $logger,
        bool $mayWarn = true,
    ) {
        $module = new Module($mayBeScript, $mayWarn, $logger, $client->clock());
        $this->resources = new Resources($client, $timeout, $module, $hooks, $logger);
        $this->keeper = new Keeper($this->resources);
        $this->serverClock = new ServerClock($this->resources);
        $this->release = new Release($this->resources, $this->keeper);
        $this->keep = new Keep($this->resources, $this->keeper, $this->serverClock, $this->release);
    }

    /**
     * Signals are handled again once the Held exists: an exception from a handler then releases the grant. After that,
     * the Held only has to be returned.
     *
     * @param null|\Closure(): bool $while
     * @throws LockException|GivenUp|Answered
     */
    public function acquire(Request $request, ?\Closure $while = null): Held
    {
        $outer = $this->admit($request);
        if ($outer !== null) {
            return $this->again($outer);
        }
        $hooks = $this->resources->hooks;
        $wasAsync = Signals::defer();
        $watching = $hooks === null ? null : $this->resources->watch($request);
        $attempt = new Attempt($this->resources, $this->keeper, $request, $while, $wasAsync);
        try {
            $grant = $attempt->run();
            $hold = new Hold($request, $grant, $attempt->began, $this->resources->pid, $this->resources->clock);
            $hold->watching = $watching;
            $watching?->granted($hold->calls instanceof Portable, $hold->token, $hold->granted);
            $held = new Held($this->keeper, $this->release, $hold);
            $request->options->reentrant && $this->enter($held);
            if ($hooks !== null) {
                $this->resources->notify($hooks->granted, $request->name, $held->waited);
            }
        } catch (LockException $error) {
            $waited = $this->resources->now() - $attempt->began;
            $this->resources->notify($hooks?->refused, $request->name, $waited, $error);
            $watching?->failed($this->resources->module->isMissing(), $error);
            throw $error;
        } catch (Answered $answered) {
            $watching?->result($this->resources->module->isMissing());
            throw $answered;
        } catch (\Throwable $error) {
            $watching?->failed($this->resources->module->isMissing(), null);
            throw $error;
        } finally {
            $wasAsync && !isset($held) && Signals::restore();
        }
        return $this->handOver($held, $wasAsync);
    }

    /**
     * Checks that the request may be made, and settles what earlier calls have left to do. Returns what the caller
     * already holds and gets again.
     *
     * @throws LockMisuseException
     */
    public function admit(Request $request): ?Held
    {
        if ($this->resources->isClosed) {
            throw new LockMisuseException($request->name, 'its Locks are closed');
        }
        $this->resources->client();
        $outer = $this->scopes ? $this->reentered($request) : null;
        $this->resources->debts->settle();
        return $outer;
    }

    /**
     * Returns a Held to its caller, who receives it unless a signal handler throws first. Signals are deferred until
     * now.
     *
     * @template H of Held
     * @param H $held
     * @return H
     */
    public function handOver(Held $held, bool $wasAsync): Held
    {
        try {
            $wasAsync && Signals::restore();
            return $held; // inside the try: PHP handles signals after a jump, and the end of a try is one
        } catch (\Throwable $error) { // the caller never receives the grant
            try {
                $this->release->release($held->hold); // which defers signals itself
            } catch (LockException) {
                // the error that ended the attempt is thrown
            } catch (\Throwable $second) { // from another signal's handler, before the release
                $held->hold->isReleased || $this->release->release($held->hold);
                throw $second;
            }
            throw $error;
        }
    }

    public function heldOnce(Hold $hold, TickRun $run, bool $isRecovery): HeldOnce
    {
        return new HeldOnce($this->keeper, $this->release, $hold, $run, $isRecovery);
    }

    /** Resumes a lock that is already held with this token. */
    public function resume(Request $request, int $token): Held
    {
        $request->bind($this->resources->client()->prefix());
        $sent = $this->resources->now();
        $grant = new Grant($token, $sent, $this->resources->module->calls());
        $hold = new Hold($request, $grant, $sent, $this->resources->pid, $this->resources->clock);
        $hold->extended($sent, max(0.001, $this->keeper->verify($hold)));
        return new Held($this->keeper, $this->release, $hold);
    }

    public function close(): void
    {
        $this->resources->close();
        foreach ($this->resources->sessions->open() as $session) {
            if (!$session->isIdle()) { // nobody will read the reply
                $session->close();
                $this->keeper->loseAll($session);
            }
        }
    }

    public function enter(Held $held): void
    {
        $this->scopes[] = \WeakReference::create($held);
    }

    /**
     * It nests no calls in the arguments of others, because PHP 8.2 may crash if a signal handler throws in the middle
     * of them.
     */
    public function leave(Held $held): void
    {
        foreach ($this->scopes as $at => $other) {
            if ($other->get() === $held) {
                unset($this->scopes[$at]);
            }
        }
    }

    /** Counts one more acquire(), unless a signal handler throws: then its caller does not receive the Held. */
    private function again(Held $held): Held
    {
        $wasAsync = Signals::defer();
        ++$held->hold->entries;
        try {
            $wasAsync && Signals::restore();
            return $held;
        } catch (\Throwable $error) {
            --$held->hold->entries;
            throw $error;
        }
    }

    /** A caller that asks for a lock within its own scope would wait for itself, unless it gets the same Held again. */
    private function reentered(Request $request): ?Held
    {
        foreach ($this->scopes as $at => $reference) {
            $held = $reference->get();
            if ($held === null || $held->hold->isReleased) {
                unset($this->scopes[$at]);
                continue;
            }
            $outer = $held->hold->request;
            if (!array_intersect($outer->keys, $request->keys) || !$held->isHeld()) {
                continue;
            }
            $isReentrant = $request->options->reentrant && !$held instanceof HeldOnce;
            if ($isReentrant && $request->isSameLock($outer)) {
                return $held;
            }
            if ($outer->isExclusive() || $request->isExclusive()) {
                $reason = 'this caller already holds it, in a scope around this call';
                throw new LockMisuseException($request->name, $reason);
            }
        }
        return null;
    }
}
