<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use OpenTelemetry\API\Metrics\CounterInterface;
use OpenTelemetry\API\Metrics\HistogramInterface;
use OpenTelemetry\API\Metrics\UpDownCounterInterface;

/** Keeps a count and a sum for each set of attributes. */
final class RecordedInstrument implements CounterInterface, HistogramInterface, UpDownCounterInterface
{
    public function __construct(private readonly Recorder $recorder, private readonly string $name)
    {
    }

    public function record(float|int $amount, iterable $attributes = [], $context = null): void
    {
        $this->add($amount, $attributes);
    }

    public function add($amount, iterable $attributes = [], $context = null): void
    {
        $point = implode(' ', [$this->name, ...array_values([...$attributes])]);
        [$count, $sum] = $this->recorder->points[$point] ?? [0, 0];
        $this->recorder->points[$point] = [$count + 1, $sum + $amount];
    }
}
