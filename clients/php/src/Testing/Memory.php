<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Core\ReplyError;
use Serverlock\Predecessor;

/**
 * The keys of a Server, and the rules by which they are granted: those of the module, for what this package uses. Times
 * are ticks of the clock.
 *
 * @internal
 */
final class Memory
{
    private const MARGIN = 1.0;

    /** @var array<array-key, Key> */
    private array $keys = [];
    /** @var list<Waiter> in order of arrival */
    private array $queue = [];
    private int $lastToken = 0;

    public function __construct(public readonly Clock $clock)
    {
    }

    public function now(): int
    {
        return $this->clock->at();
    }

    public function key(string $name): Key
    {
        $key = $this->keys[$name] ??= new Key();
        $key->tidy($this->now());
        return $key;
    }

    /**
     * @param list<string> $names
     * @return list<Key>
     */
    public function keys(array $names): array
    {
        return array_map($this->key(...), $names);
    }

    public function isGrantable(Ask $ask): bool
    {
        foreach ($this->keys($ask->keys) as $key) {
            if (!$key->admits($ask, $this->now())) {
                return false;
            }
        }
        return !$this->waiting($ask->keys);
    }

    /**
     * The attempts that wait for one of these keys.
     *
     * @param list<string> $names
     * @return list<Waiter>
     */
    public function waiting(array $names): array
    {
        $isOne = static fn (Waiter $waiter): bool => (bool) array_intersect($waiter->ask->keys, $names);
        return array_values(array_filter($this->queue, $isOne));
    }

    public function grant(Ask $ask): Grant
    {
        $this->lastToken = max($this->clock->micros(), $this->lastToken + 1);
        $grant = new Grant($this->lastToken, $ask, $this->now());
        $this->lease($grant, $ask->lease);
        foreach ($this->keys($ask->keys) as $key) {
            $before = $key->take($grant, $this->now());
            if ($before !== null && $grant->predecessor === null) {
                $overdue = ($this->now() - $before->freeAt) / Clock::ticks(1.0);
                $grant->predecessor = new Predecessor($overdue, $before->token, $before->ask->owner);
            }
        }
        return $grant;
    }

    public function lease(Grant $grant, int $lease): void
    {
        $grant->lease($this->now(), $lease, Clock::ticks(self::MARGIN));
    }

    /**
     * Waits in the queue. Time passes until the attempt has the lock or a result, or its wait ends: nothing else could
     * happen.
     *
     * @throws ReplyError
     */
    public function await(Ask $ask): Grant|string|null
    {
        $this->queue[] = $waiter = new Waiter($ask);
        try {
            $isOver = function () use ($waiter): bool {
                $this->serve();
                $waiter->grant ?? $waiter->result ?? $this->allow($waiter->ask->keys);
                return $waiter->grant !== null || $waiter->result !== null;
            };
            $this->clock->passUntil($this->now() + $ask->wait, $isOver, fn (): ?int => $this->nextAt($ask));
        } finally {
            $this->leave($waiter);
        }
        return $waiter->grant ?? $waiter->result;
    }

    /**
     * @param list<string> $names
     * @throws ReplyError if the test refuses one of the keys
     */
    public function allow(array $names): void
    {
        foreach ($this->keys($names) as $key) {
            if ($key->refusal !== null) {
                throw new ReplyError($key->refusal);
            }
        }
    }

    /** Grants the first waiters what they can have. */
    public function serve(): void
    {
        $taken = [];
        foreach ($this->queue as $waiter) {
            $ask = $waiter->ask;
            $isFree = !array_intersect($ask->keys, $taken);
            foreach ($ask->keys as $name) {
                $key = $this->key($name);
                $isFree = $isFree && $key->refusal === null && $key->admits($ask, $this->now());
            }
            if ($isFree) {
                $waiter->grant = $this->grant($ask);
                $this->leave($waiter);
            } elseif (count($ask->keys) === 1) { // a wait for several keys reserves none of them
                $taken = [...$taken, ...$ask->keys];
            }
        }
    }

    /** Gives a result to the attempts that wait for one. */
    public function answer(string $name, string $result): void
    {
        foreach ($this->waiting([$name]) as $waiter) {
            if ($waiter->ask->takesResult) {
                $waiter->result = $result;
                $this->leave($waiter);
            }
        }
    }

    /** Ends a grant on those of these keys that have it. */
    public function release(Grant $grant, string ...$names): void
    {
        foreach ($names as $name) {
            $this->key($name)->remove($grant);
        }
        $this->serve();
    }

    /** The locks of the session end with its connection. */
    public function disconnect(object $connection): void
    {
        $now = $this->now();
        foreach ($this->keys as $key) {
            foreach ($key->held($now) as $grant) {
                if ($grant->ask->isSession && $grant->ask->connection === spl_object_id($connection)) {
                    $grant->expire($now, $now + Clock::ticks(self::MARGIN));
                }
            }
        }
    }

    private function leave(Waiter $waiter): void
    {
        $this->queue = array_values(array_filter($this->queue, static fn (Waiter $it): bool => $it !== $waiter));
    }

    /** When one of the keys next becomes free on its own. */
    private function nextAt(Ask $ask): ?int
    {
        $ends = [];
        foreach ($this->keys($ask->keys) as $key) {
            $ends = [...$ends, ...array_map(static fn (Grant $it): int => $it->freeAt, $key->held($this->now()))];
        }
        return $ends ? min($ends) : null;
    }
}
