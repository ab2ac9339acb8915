<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Held;

/**
 * Runs work while a lock is held.
 *
 * @internal
 */
final class Scope
{
    public function __construct(private readonly Engine $engine, private readonly string $name)
    {
    }

    /**
     * Returns what the work returned; null if there is no lock.
     *
     * @template H of Held
     * @template T
     * @param \Closure(): (H|null) $acquire
     * @param callable(H): T $work
     * @param \Closure(H): bool $end ends the hold of work that succeeded; returns whether it was held to the end
     * @return T|null
     * @throws LockException
     */
    public function run(\Closure $acquire, callable $work, \Closure $end): mixed
    {
        $this->refuseGenerator($work);
        $finish = $release = static fn (Held $held): bool => $held->end();
        $held = $acquire();
        try { // covers every step: an exception from a signal handler ends the scope
            if ($held === null) {
                return null;
            }
            $this->engine->enter($held);
            $result = $work($held);
            $finish = $end;
            if ($result instanceof \Generator) {
                $finish = $release;
                throw $this->isGenerator();
            }
            $this->engine->leave($held);
            if (!$held->hold->isReleased && !$end($held)) {
                throw $this->engine->keeper->over($held->hold);
            }
        } catch (\Throwable $error) {
            try {
                $this->giveBack($held, $finish);
            } catch (LockException) {
                // the work's error is thrown
            } catch (\Throwable $second) { // from another signal, before the release
                $this->giveBack($held, $finish);
                throw $second;
            }
            throw $error;
        }
        return $result;
    }

    /**
     * Runs work within a scope that already holds the lock, and releases nothing.
     *
     * @template T
     * @param callable(Held): T $work
     * @return T
     */
    public function runWithin(Held $outer, callable $work): mixed
    {
        $this->refuseGenerator($work);
        $result = $work($outer);
        return $result instanceof \Generator ? throw $this->isGenerator() : $result;
    }

    /** @throws LockMisuseException */
    public function refuseGenerator(callable $work): void
    {
        if ((new \ReflectionFunction($work(...)))->isGenerator()) {
            throw $this->isGenerator();
        }
    }

    private function isGenerator(): LockMisuseException
    {
        $reason = 'the work is a generator, which would run after the release: iterate it in the work';
        return new LockMisuseException($this->name, $reason);
    }

    private function giveBack(?Held $held, \Closure $finish): void
    {
        if ($held !== null) {
            $this->engine->leave($held);
            $held->hold->isReleased || $finish($held);
        }
    }
}
