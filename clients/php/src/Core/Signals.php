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
    public static function deliver(bool $wereAsync): void
    {
        if ($wereAsync) {
            pcntl_signal_dispatch();
        }
    }

    public static function restore(bool $wereAsync): void
    {
        if ($wereAsync) {
            pcntl_async_signals(true);
        }
    }
}
