<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * Has signal handlers of the application run where an attempt can be given up, and not between two of its steps: an
 * exception of a handler would lose a grant that is just being read.
 *
 * @internal
 */
final class Signals
{
    private static bool $areDeferred = false;

    /** Whether they were handled at once so far, and restore() is due. What came before this is handled in it. */
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

    /** A function of its own: PHP handles a signal that has come before where it enters one. */
    private static function begin(): void
    {
        self::$areDeferred = true;
    }

    /** Handles those that have come meanwhile. */
    public static function deliver(): void
    {
        pcntl_signal_dispatch();
    }

    /** They are handled at once again, and those that have come meanwhile now. */
    public static function restore(): void
    {
        self::$areDeferred = false;
        pcntl_async_signals(true);
        pcntl_signal_dispatch();
    }
}
