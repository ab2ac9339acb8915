<?php

declare(strict_types=1);

// The interfaces of open-telemetry/api (August 2026) as far as the package uses them, with the same signatures. Debian
// has no such package.

namespace OpenTelemetry\API\Trace {
    interface SpanKind
    {
        public const KIND_INTERNAL = 0;
        public const KIND_CLIENT = 1;
    }

    interface StatusCode
    {
        public const STATUS_ERROR = 'Error';
    }

    interface SpanInterface
    {
        public function setAttribute(string $key, bool|int|float|string|array|null $value): SpanInterface;

        public function setAttributes(iterable $attributes): SpanInterface;

        public function addEvent(string $name, iterable $attributes = [], ?int $timestamp = null): SpanInterface;

        public function setStatus(string $code, ?string $description = null): SpanInterface;

        public function end(?int $endEpochNanos = null): void;
    }

    interface SpanBuilderInterface
    {
        public function setAttributes(iterable $attributes): SpanBuilderInterface;

        public function setSpanKind(int $spanKind): SpanBuilderInterface;

        public function startSpan(): SpanInterface;
    }

    interface TracerInterface
    {
        public function spanBuilder(string $spanName): SpanBuilderInterface;
    }

    interface TracerProviderInterface
    {
        public function getTracer(
            string $name,
            ?string $version = null,
            ?string $schemaUrl = null,
            iterable $attributes = [],
        ): TracerInterface;
    }
}

namespace OpenTelemetry\API\Metrics {
    interface HistogramInterface
    {
        public function record(float|int $amount, iterable $attributes = [], $context = null): void;
    }

    interface CounterInterface
    {
        public function add(float|int $amount, iterable $attributes = [], $context = null): void;
    }

    interface UpDownCounterInterface
    {
        public function add($amount, iterable $attributes = [], $context = null): void;
    }

    interface MeterInterface
    {
        public function createCounter(
            string $name,
            ?string $unit = null,
            ?string $description = null,
            array $advisory = [],
        ): CounterInterface;

        public function createHistogram(
            string $name,
            ?string $unit = null,
            ?string $description = null,
            array $advisory = [],
        ): HistogramInterface;

        public function createUpDownCounter(
            string $name,
            ?string $unit = null,
            ?string $description = null,
            array $advisory = [],
        ): UpDownCounterInterface;
    }

    interface MeterProviderInterface
    {
        public function getMeter(
            string $name,
            ?string $version = null,
            ?string $schemaUrl = null,
            iterable $attributes = [],
        ): MeterInterface;
    }
}

namespace OpenTelemetry\API {
    use OpenTelemetry\API\Metrics\MeterProviderInterface;
    use OpenTelemetry\API\Trace\TracerProviderInterface;

    final class Globals
    {
        public static TracerProviderInterface&MeterProviderInterface $provider;

        public static function tracerProvider(): TracerProviderInterface
        {
            return self::$provider;
        }

        public static function meterProvider(): MeterProviderInterface
        {
            return self::$provider;
        }
    }
}
