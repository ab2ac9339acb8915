<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use OpenTelemetry\API\Metrics\MeterInterface;
use OpenTelemetry\API\Metrics\MeterProviderInterface;
use OpenTelemetry\API\Trace\SpanBuilderInterface;
use OpenTelemetry\API\Trace\TracerInterface;
use OpenTelemetry\API\Trace\TracerProviderInterface;

/** A double of OpenTelemetry: what an SDK would export. */
final class Recorder implements TracerProviderInterface, TracerInterface, MeterProviderInterface, MeterInterface
{
    /** @var list<RecordedSpan> */
    public array $ended = [];
    /** @var array<string, array{int, int|float}> a metric's name, unit and attributes: the count and the sum */
    public array $points = [];
    /** @var list<array{string, ?string}> */
    public array $scopes = [];

    public function getTracer(
        string $name,
        ?string $version = null,
        ?string $schemaUrl = null,
        iterable $attributes = [],
    ): TracerInterface {
        $this->scopes[] = [$name, $version];
        return $this;
    }

    public function getMeter(
        string $name,
        ?string $version = null,
        ?string $schemaUrl = null,
        iterable $attributes = [],
    ): MeterInterface {
        $this->scopes[] = [$name, $version];
        return $this;
    }

    public function spanBuilder(string $spanName): SpanBuilderInterface
    {
        return new RecordedSpan($this, $spanName);
    }

    public function createCounter(
        string $name,
        ?string $unit = null,
        ?string $description = null,
        array $advisory = [],
    ): RecordedInstrument {
        return new RecordedInstrument($this, "$name $unit");
    }

    public function createHistogram(
        string $name,
        ?string $unit = null,
        ?string $description = null,
        array $advisory = [],
    ): RecordedInstrument {
        return new RecordedInstrument($this, "$name $unit");
    }

    public function createUpDownCounter(
        string $name,
        ?string $unit = null,
        ?string $description = null,
        array $advisory = [],
    ): RecordedInstrument {
        return new RecordedInstrument($this, "$name $unit");
    }

    /** @return list<RecordedSpan> */
    public function spans(string $name): array
    {
        return array_values(array_filter($this->ended, static fn (RecordedSpan $span): bool => $span->name === $name));
    }
}
