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
    /** Whether they were handled at once so far. What came before this is handled in it. */
    public static function defer(): bool
    {
        if (!function_exists('pcntl_async_signals')) {
            return false;
        }
        try {
            $wereAsync = pcntl_async_signals(false);
            self::pass();
        } catch (\Throwable $error) {
            pcntl_async_signals(true);
            throw $error;
        }
        return $wereAsync;
    }

    /** PHP looks for a signal that has come where it enters a function, and would do so at the next one. */
    private static function pass(): void
    {
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
