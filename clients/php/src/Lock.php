<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Core\Scope;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;

/** A description of a lock: it holds nothing, and is reusable. Each use returns a new Held. */
final class Lock
{
    /** @internal */
    public function __construct(private readonly Engine $engine, private readonly Request $request)
    {
    }

    /**
     * Acquires the lock, waiting for at most its `wait`. The caller must release it.
     *
     * An exception from a signal handler ends the wait, and leaves nothing behind.
     *
     * @throws LockException
     */
    public function acquire(): Held
    {
        return $this->engine->acquire($this->request);
    }

    /**
     * Runs the work while the lock is held, releases it, and returns what the work returned. If the work fails, its
     * error is thrown; otherwise LockLostException is thrown if the lock was not held to the end.
     *
     * Asking for the same lock within the work is an error, unless the lock is reentrant: then the end of the outermost
     * run() releases it, whatever was acquired within it. It is also an error if the work is a generator: it would run
     * after the release. After exit() the lock ends with its lease.
     *
     * @template T
     * @param callable(Held): T $work
     * @return T
     * @throws LockException
     */
    public function run(callable $work): mixed
    {
        $scope = new Scope($this->engine, $this->request->name);
        $outer = $this->request->options->reentrant ? $this->engine->admit($this->request) : null;
        if ($outer !== null) {
            return $scope->runWithin($outer, $work);
        }
        $acquire = fn (): Held => $this->engine->acquire($this->request);
        $release = static fn (Held $held): bool => $held->end();
        return $scope->run($acquire, $work, $release);
    }

    /**
     * Takes over a lock that another process, or an earlier request, holds with this token, with what is left of its
     * lease. Only the token is needed. Without the module, the lock must have been acquired with the script.
     *
     * @throws LockException
     */
    public function resume(int $token): Held
    {
        if ($this->request->options->session) {
            $reason = 'a session belongs to its connection: it cannot be resumed';
            throw new LockMisuseException($this->request->name, $reason);
        }
        return $this->engine->resume($this->request, $token);
    }
}
