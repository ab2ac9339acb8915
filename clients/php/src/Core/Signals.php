<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * Lets the application's signal handlers run only where an attempt can be given up, not between two of its steps: a
 * handler's exception would lose a grant that is being read.
 *
 * @internal
 */
final class Signals
{
    private static bool $areDeferred = false;

    /**
     * Returns whether signals were handled at once until now, so restore() must follow. Handles earlier signals itself.
     */
    public static function defer(): bool
    {
        if (self::$areDeferred || !function_exists('pcntl_async_signals')) {
            return false;
        }
        try {
            if (!pcntl_async_signals(false)) {
                return false;
            }
            self::begin();
        } catch (\Throwable $error) {
            self::$areDeferred = false;
            pcntl_async_signals(true);
            throw $error;
        }
        return true;
    }

    /** A separate function, because PHP handles pending signals when it enters one. */
    private static function begin(): void
    {
        self::$areDeferred = true;
    }

    /** Handles the pending signals. */
    public static function deliver(): void
    {
        pcntl_signal_dispatch();
    }

    /** Handles the pending signals. Later ones are handled at once again. */
    public static function restore(): void
    {
        self::$areDeferred = false;
        pcntl_async_signals(true);
        pcntl_signal_dispatch();
    }
}
