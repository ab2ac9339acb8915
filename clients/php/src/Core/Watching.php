<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\End;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Watch;

/**
 * Reports one attempt and its hold to an application's Watch: first the result of the attempt, and after a grant, once,
 * the end of the hold.
 *
 * @internal
 */
final class Watching
{
    private readonly float $began;
    private float $granted = 0.0;
    private bool $isOver = false;

    /** @param \Closure(?\Closure, mixed...): void $notify calls a hook */
    public function __construct(
        private readonly Watch $watch,
        private readonly Form $form,
        private readonly Time $clock,
        private readonly \Closure $notify,
    ) {
        $this->began = $clock->now();
    }

    /** Call this before the hold can end. */
    public function granted(bool $byScript, int $token, float $granted): void
    {
        $this->granted = $granted;
        ($this->notify)($this->watch->granted(...), $this->command($byScript), $token, $granted - $this->began);
    }

    public function failed(bool $byScript, ?LockException $why): void
    {
        $waited = $this->clock->now() - $this->began;
        ($this->notify)($this->watch->failed(...), $this->command($byScript), $waited, $why);
    }

    public function result(bool $byScript): void
    {
        $waited = $this->clock->now() - $this->began;
        ($this->notify)($this->watch->result(...), $this->command($byScript), $waited);
    }

    /** The hold has ended. Only the first call counts. */
    public function ended(End $end, ?LockLostException $why = null): void
    {
        if ($this->isOver) {
            return;
        }
        $this->isOver = true;
        ($this->notify)($this->watch->ended(...), $end, $this->clock->now() - $this->granted, $why);
    }

    private function command(bool $byScript): string
    {
        return $byScript ? $this->form->function() : $this->form->value;
    }
}
