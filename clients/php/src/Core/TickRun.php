<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The tick that a hold runs.
 *
 * @internal
 */
final class TickRun
{
    /**
     * @param Estimate $clock the server's clock
     * @param float $margin what the server adds to the lease
     * @param bool $isLong from the start, the lease lasts until the end of the window
     */
    public function __construct(
        public readonly int $tick,
        private readonly float $period,
        public Estimate $clock,
        private readonly float $margin,
        public readonly bool $isLong,
    ) {
    }

    /**
     * When the lease must end, by the local clock, so that the server lets others in at the end of the window. Others
     * may get in a little later, but not earlier, if the estimate of the server's clock is wrong.
     */
    public function leaseEnds(): float
    {
        $end = Ticks::windowEnds($this->tick, $this->period) + min($this->clock->doubt, Estimate::MOST_DOUBT);
        return $end - $this->clock->offset - $this->margin;
    }

    /**
     * Whether the predecessor's lease expired within this window: its work may be half done.
     *
     * @param float $granted when the lock was granted at the earliest, by the server's clock
     */
    public function isRecovery(?float $overdue, float $granted): bool
    {
        return $overdue !== null && Ticks::isRecovery($granted - $overdue, $this->tick, $this->period);
    }
}
