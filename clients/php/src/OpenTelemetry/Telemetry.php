<?php

declare(strict_types=1);

namespace Serverlock\OpenTelemetry;

use OpenTelemetry\API\Globals;
use OpenTelemetry\API\Metrics\MeterProviderInterface;
use OpenTelemetry\API\Trace\TracerProviderInterface;
use Serverlock\Hooks;

/**
 * Exports OpenTelemetry spans and metrics of locks: `new Locks($redis, hooks: Telemetry::hooks())`. It needs
 * open-telemetry/api.
 *
 * The span lock.wait lasts from the call to its result, and the span lock.hold from the grant to its end. Their parent
 * is the caller's span. If the lock is lost, lock.hold has an error and the event lock.lost. It is not an error if
 * somebody else has the lock, or if an exception of the application ends the attempt.
 *
 * The histograms serverlock.wait.duration and serverlock.hold.duration are in seconds. The counter serverlock.losses
 * counts lost locks; serverlock.held is how many locks are held now.
 */
final class Telemetry
{
    public const VERSION = '1.0.0';
    private const NAME = 'serverlock';

    /**
     * Hooks that export spans and metrics. Any number of Locks may share them.
     *
     * @param null|TracerProviderInterface $tracerProvider by default the global one
     * @param null|MeterProviderInterface $meterProvider by default the global one
     * @param bool $keyAttribute metrics have the key as an attribute: only for few different keys
     */
    public static function hooks(
        ?TracerProviderInterface $tracerProvider = null,
        ?MeterProviderInterface $meterProvider = null,
        bool $keyAttribute = false,
    ): Hooks {
        $tracer = ($tracerProvider ?? Globals::tracerProvider())->getTracer(self::NAME, self::VERSION);
        $meter = ($meterProvider ?? Globals::meterProvider())->getMeter(self::NAME, self::VERSION);
        $instruments = new Instruments($tracer, $meter, $keyAttribute);
        return new Hooks(began: static fn (array $keys): Trace => new Trace($instruments, $keys));
    }
}
