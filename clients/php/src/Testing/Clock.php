<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Core\Time;
use Serverlock\Exception\LockBadArgumentException;

/**
 * The time of a Server and its managers. It passes only in advance(), and while a caller waits: PHP does one thing at a
 * time, so nothing else could end the wait.
 */
final class Clock implements Time
{
    /** Binary fractions of a second, so that sums of times are exact. A duration is rounded up. */
    private const TICKS = 1 << 20;
    /** It starts at the beginning of 2026. */
    private const START = 1_767_225_600;

    private int $ticks = 0;
    /** @var list<array{int, \Closure(): mixed}> */
    private array $planned = [];

    /**
     * Lets time pass, and carries out everything that falls due, in chronological order.
     *
     * @param float $seconds 0 or more
     */
    public function advance(float $seconds): void
    {
        if (!($seconds >= 0 && $seconds < INF)) {
            throw new LockBadArgumentException('', "advance takes seconds, 0 or more: $seconds");
        }
        $this->passUntil($this->ticks + self::ticks($seconds));
    }

    /**
     * Calls the action when that time has passed, in advance() or while a caller waits. It can do what another process
     * would do in the meantime, for example release a lock.
     *
     * @param callable(): mixed $action
     */
    public function after(float $seconds, callable $action): void
    {
        $this->planned[] = [$this->ticks + self::ticks($seconds), $action(...)];
    }

    /** @internal */
    public function now(): float
    {
        return $this->ticks / self::TICKS;
    }

    /** @internal */
    public function pause(float $seconds): void
    {
        $this->advance(max(0.0, $seconds));
    }

    /** @internal */
    public static function ticks(float $seconds): int
    {
        return (int) ceil($seconds * self::TICKS);
    }

    /** @internal */
    public function at(): int
    {
        return $this->ticks;
    }

    /**
     * Microseconds since 1970.
     *
     * @internal
     */
    public function micros(): int
    {
        return self::START * 1_000_000 + intdiv($this->ticks * 15_625, self::TICKS / 64);
    }

    /**
     * Lets time pass until then, or until the condition is true.
     *
     * @internal
     * @param null|\Closure(): bool $isOver
     * @param null|\Closure(): ?int $next when the condition may become true on its own
     */
    public function passUntil(int $end, ?\Closure $isOver = null, ?\Closure $next = null): void
    {
        while ($isOver === null || !$isOver()) {
            $at = min([$end, ...array_column($this->planned, 0), ...array_filter([$next === null ? null : $next()])]);
            $this->ticks = max($this->ticks, $at);
            $action = $this->takeDue();
            if ($action !== null) {
                $action();
            } elseif ($this->ticks >= $end) {
                return;
            }
        }
    }

    /** The next action that is due: time moves from one to the next, so they are due at the same time. */
    private function takeDue(): ?\Closure
    {
        $due = array_filter($this->planned, fn (array $plan): bool => $plan[0] <= $this->ticks);
        $first = array_key_first($due);
        if ($first === null) {
            return null;
        }
        unset($this->planned[$first]);
        return $due[$first][1];
    }
}
