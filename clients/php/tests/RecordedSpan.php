<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use OpenTelemetry\API\Trace\SpanBuilderInterface;
use OpenTelemetry\API\Trace\SpanInterface;

/** A span and its builder. Once it has ended, it cannot change. */
final class RecordedSpan implements SpanBuilderInterface, SpanInterface
{
    /** @var array<string, mixed> */
    public array $attributes = [];
    public int $kind = 0;
    /** @var null|array{string, ?string} */
    public ?array $status = null;
    /** @var list<string> */
    public array $events = [];
    private bool $hasStarted = false;
    private bool $hasEnded = false;

    public function __construct(private readonly Recorder $recorder, public readonly string $name)
    {
    }

    public function setSpanKind(int $spanKind): SpanBuilderInterface
    {
        $this->kind = $spanKind;
        return $this;
    }

    public function startSpan(): SpanInterface
    {
        $this->hasStarted = true;
        return $this;
    }

    public function setAttribute(string $key, bool|int|float|string|array|null $value): self
    {
        return $this->setAttributes([$key => $value]);
    }

    public function setAttributes(iterable $attributes): self
    {
        $this->demandOpen();
        foreach ($attributes as $key => $value) {
            foreach ((array) $value as $text) {
                preg_match('//u', (string) $text) === 1 || throw new \LogicException("$key is not UTF-8");
            }
            $this->attributes[$key] = $value;
        }
        return $this;
    }

    public function addEvent(string $name, iterable $attributes = [], ?int $timestamp = null): SpanInterface
    {
        $this->demandOpen();
        $this->events[] = $name;
        return $this;
    }

    public function setStatus(string $code, ?string $description = null): SpanInterface
    {
        $this->demandOpen();
        $this->status = [$code, $description];
        return $this;
    }

    public function end(?int $endEpochNanos = null): void
    {
        $this->demandOpen();
        $this->hasStarted || throw new \LogicException('it has not started');
        $this->hasEnded = true;
        $this->recorder->ended[] = $this;
    }

    private function demandOpen(): void
    {
        $this->hasEnded && throw new \LogicException('it has ended');
    }
}
