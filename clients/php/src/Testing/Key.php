<?php

declare(strict_types=1);

namespace Serverlock\Testing;

/**
 * A key of the server, and its holders, some of which may have expired.
 *
 * @internal
 */
final class Key
{
    /** For how many seconds an expired lock is still reported to a successor. */
    private const RETENTION = 60.0;

    /** The error for attempts while the test refuses the key. */
    public ?string $refusal = null;
    /** @var list<Grant> */
    public array $holders = [];

    public function tidy(int $now): void
    {
        $oldest = $now - Clock::ticks(self::RETENTION);
        $this->keep(static fn (Grant $grant): bool => $grant->freeAt > $oldest);
    }

    /** @return list<Grant> */
    public function held(int $now): array
    {
        return array_values(array_filter($this->holders, static fn (Grant $grant): bool => $grant->freeAt > $now));
    }

    /** The grant that expired first; $isLast: that expired last. */
    public function expired(int $now, bool $isLast = false): ?Grant
    {
        $expired = array_filter($this->holders, static fn (Grant $grant): bool => $grant->freeAt <= $now);
        usort($expired, static fn (Grant $one, Grant $two): int => $one->freeAt <=> $two->freeAt);
        return $expired[$isLast ? count($expired) - 1 : 0] ?? null;
    }

    public function admits(Ask $ask, int $now): bool
    {
        $held = $this->held($now);
        $exclusive = array_filter($held, static fn (Grant $grant): bool => !$grant->ask->shares);
        return count($held) < $ask->most && !$exclusive;
    }

    /** Adds a holder. Returns the one whose place it takes, because its lease expired. */
    public function take(Grant $grant, int $now): ?Grant
    {
        $before = count($this->holders) >= $grant->ask->most ? $this->expired($now) : null;
        $this->keep(static fn (Grant $other): bool => $grant->ask->shares && $other !== $before);
        $this->holders[] = $grant;
        return $before;
    }

    public function find(int $token): ?Grant
    {
        foreach ($this->holders as $grant) {
            if ($grant->token === $token) {
                return $grant;
            }
        }
        return null;
    }

    public function heldBy(string $id, int $now): ?Grant
    {
        foreach ($this->held($now) as $grant) {
            if ($grant->ask->id === $id) {
                return $grant;
            }
        }
        return null;
    }

    public function remove(Grant $grant): void
    {
        $this->keep(static fn (Grant $other): bool => $other !== $grant);
    }

    /** @param \Closure(Grant): bool $which */
    private function keep(\Closure $which): void
    {
        $this->holders = array_values(array_filter($this->holders, $which));
    }
}
