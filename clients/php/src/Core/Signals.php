<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * Signal handlers of the application run at points where an attempt can be given up, not between two steps of it: what
 * a handler throws would lose a grant that is just being read.
 *
 * @internal
 */
final class Signals
{
    /** Whether they were handled at once so far. */
    public static function defer(): bool
    {
        return function_exists('pcntl_async_signals') && pcntl_async_signals(false);
    }

    /** Handles those that have come meanwhile. */
    public static function deliver(): void
    {
        pcntl_signal_dispatch();
    }

    /** They are handled at once again, and those that have come meanwhile now. */
    public static function restore(): void
    {
        pcntl_async_signals(true);
        pcntl_signal_dispatch();
    }
}
