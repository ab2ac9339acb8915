<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Core\Hold;
use Serverlock\Core\Keeper;
use Serverlock\Core\Release;
use Serverlock\Core\TickRun;

/** The held lock of one tick. */
final class HeldOnce extends Held
{
    /** How many periods after the beginning of 1970 the tick begins, by the server's clock. */
    public readonly int $tick;

    /** @internal */
    public function __construct(
        Keeper $keeper,
        Release $release,
        Hold $hold,
        /** @internal */
        public readonly TickRun $run,
        /**
         * Whether the lease of a process that ran expired within this tick's window: its work may be half done.
         */
        public readonly bool $recovered,
    ) {
        parent::__construct($keeper, $release, $hold);
        $this->tick = $run->tick;
    }
}
