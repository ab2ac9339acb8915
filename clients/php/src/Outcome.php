<?php

declare(strict_types=1);

namespace Serverlock;

/** What became of a call for a tick. */
enum Outcome: string
{
    /** The work ran here. */
    case Ran = 'ran';
    /** Another process is running the tick, or has run it. */
    case Elsewhere = 'elsewhere';
    /**
     * The lease of a process that ran expired within this tick's window, perhaps in the middle of its work, and the
     * work ran here.
     */
    case Recovered = 'recovered';
}
