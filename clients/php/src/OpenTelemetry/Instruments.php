<?php

declare(strict_types=1);

namespace Serverlock\OpenTelemetry;

use OpenTelemetry\API\Metrics\CounterInterface;
use OpenTelemetry\API\Metrics\HistogramInterface;
use OpenTelemetry\API\Metrics\MeterInterface;
use OpenTelemetry\API\Metrics\UpDownCounterInterface;
use OpenTelemetry\API\Trace\TracerInterface;

/**
 * The tracer, and the metrics.
 *
 * @internal
 */
final class Instruments
{
    public const OUTCOME = 'serverlock.outcome';
    /** Seconds: the default ones suit milliseconds. */
    private const BOUNDARIES = [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200,
    ];

    public readonly HistogramInterface $waits;
    public readonly HistogramInterface $holds;
    public readonly CounterInterface $losses;
    public readonly UpDownCounterInterface $held;

    public function __construct(
        public readonly TracerInterface $tracer,
        MeterInterface $meter,
        private readonly bool $keyAttribute,
    ) {
        $this->waits = self::histogram($meter, 'serverlock.wait.duration', 'How long attempts to get a lock took');
        $this->holds = self::histogram($meter, 'serverlock.hold.duration', 'How long locks were held');
        $losses = 'Locks that were lost while they were held';
        $this->losses = $meter->createCounter('serverlock.losses', '{loss}', $losses);
        $this->held = $meter->createUpDownCounter('serverlock.held', '{lock}', 'Locks that are held');
    }

    /**
     * The attributes of a measurement.
     *
     * @param array<string, mixed> $key
     * @return array<string, mixed>
     */
    public function labels(array $key, ?string $outcome = null): array
    {
        return ($outcome === null ? [] : [self::OUTCOME => $outcome]) + ($this->keyAttribute ? $key : []);
    }

    private static function histogram(MeterInterface $meter, string $name, string $description): HistogramInterface
    {
        return $meter->createHistogram($name, 's', $description, ['ExplicitBucketBoundaries' => self::BOUNDARIES]);
    }
}
