<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * A clock that keeps running while the machine is suspended, and never goes backwards: the monotonic clock, plus the
 * time that the wall clock has gained on it. PHP cannot read a system clock that does both.
 *
 * Setting the wall clock back changes nothing. Setting it forward looks like a suspend, so a loss may be reported too
 * early.
 *
 * @internal
 */
final class Clock
{
    /** Two clocks cannot be read at the same moment: a smaller difference counts as none. */
    private const SLACK = 0.02;
    private const AT_ONCE = 0.001;

    /** @var null|\Closure(): array{float, float} for tests: the monotonic clock and the wall clock */
    public static ?\Closure $read = null;
    /** How far the wall clock was ahead of the monotonic one. */
    private static ?float $skew = null;
    /** Time that the monotonic clock has missed. */
    private static float $missed = 0.0;

    public static function now(): float
    {
        [$monotonic, $wall] = self::read();
        if (self::$skew === null || abs($wall - $monotonic - self::$skew) > self::SLACK) {
            self::compare();
        }
        return $monotonic + self::$missed;
    }

    /** The application's signal handlers run during the pause; an exception in one ends it. */
    public static function pause(float $seconds): void
    {
        if ($seconds > 0) {
            usleep((int) ceil($seconds * 1e6));
        }
    }

    /**
     * Reads the clocks again if the process was stopped between the two readings, which would look like a difference.
     */
    private static function compare(): void
    {
        for ($tries = 0; $tries < 100; ++$tries) {
            [$monotonic, $wall] = self::read();
            if (self::read()[0] - $monotonic < self::AT_ONCE) {
                $skew = $wall - $monotonic;
                self::$missed += max(0.0, $skew - (self::$skew ?? $skew));
                self::$skew = $skew;
                return;
            }
        }
    }

    /** @return array{float, float} */
    private static function read(): array
    {
        return self::$read === null ? [hrtime(true) / 1e9, microtime(true)] : (self::$read)();
    }
}
