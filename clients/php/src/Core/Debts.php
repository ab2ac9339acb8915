<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * Releases and cancellations that could not be sent. Later calls to the manager send them: PHP has no threads.
 *
 * @internal
 */
final class Debts implements \Countable
{
    private const PAUSE = 1.0;

    /** @var list<array{float, float, \Closure(): void}> not before, not after, the work */
    private array $debts = [];

    public function __construct(private readonly Time $clock)
    {
    }

    /** @param \Closure(): void $what throws ReplyError or ConnectionLost */
    public function add(float $from, float $until, \Closure $what): void
    {
        $this->debts[] = [$from, $until, $what];
    }

    /** Signals are deferred, so that no debt is lost. */
    public function settle(): void
    {
        if (!$this->debts) {
            return;
        }
        $wasAsync = Signals::defer();
        try {
            $this->settleAll();
        } finally {
            $wasAsync && Signals::restore();
        }
    }

    private function settleAll(): void
    {
        [$debts, $this->debts] = [$this->debts, []];
        foreach ($debts as [$from, $until, $what]) {
            $now = $this->clock->now();
            if ($now >= $until) {
                continue;
            }
            if ($now < $from) {
                $this->debts[] = [$from, $until, $what];
                continue;
            }
            try {
                $what();
            } catch (ReplyError | ConnectionLost $error) {
                if (Failures::isTransient($error)) {
                    $this->debts[] = [$this->clock->now() + self::PAUSE, $until, $what];
                }
            }
        }
    }

    public function count(): int
    {
        return count($this->debts);
    }
}
