<?php

declare(strict_types=1);

namespace Serverlock\OpenTelemetry;

use OpenTelemetry\API\Trace\SpanInterface;
use OpenTelemetry\API\Trace\SpanKind;
use OpenTelemetry\API\Trace\StatusCode;
use Serverlock\End;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Watch;

/**
 * One attempt, and its hold.
 *
 * @internal
 */
final class Trace implements Watch
{
    /** Outcomes of attempts that are not errors. */
    private const EXPECTED = ['refused', 'timeout', 'cancelled'];

    /** @var array<string, mixed> */
    private readonly array $key;
    private readonly SpanInterface $wait;
    private SpanInterface $hold;

    /** @param list<string> $keys */
    public function __construct(private readonly Instruments $instruments, array $keys)
    {
        $shown = array_map(self::shown(...), $keys);
        $this->key = count($shown) === 1 ? ['serverlock.key' => $shown[0]] : ['serverlock.keys' => $shown];
        $this->wait = $this->start('lock.wait', SpanKind::KIND_CLIENT, ['db.system.name' => 'redis']);
    }

    public function granted(string $command, int $token, float $waited): void
    {
        $this->endWait($command, $waited, 'granted');
        // The caller's span is still current.
        $this->hold = $this->start('lock.hold', SpanKind::KIND_INTERNAL, ['serverlock.token' => $token]);
        $this->instruments->held->add(1, $this->instruments->labels($this->key));
    }

    public function failed(string $command, float $waited, ?LockException $why): void
    {
        $outcome = $why?->kind ?? 'cancelled';
        if ($why !== null && !in_array($outcome, self::EXPECTED, true)) {
            self::fail($this->wait, $outcome, $why);
        }
        $this->endWait($command, $waited, $outcome);
    }

    public function result(string $command, float $waited): void
    {
        $this->endWait($command, $waited, 'result');
    }

    public function ended(End $end, float $held, ?LockLostException $why): void
    {
        $this->hold->setAttribute(Instruments::OUTCOME, $end->value);
        if ($why !== null) {
            $this->hold->addEvent('lock.lost');
            self::fail($this->hold, $end->value, $why);
            $this->instruments->losses->add(1, $this->instruments->labels($this->key));
        }
        $this->hold->end();
        $this->instruments->held->add(-1, $this->instruments->labels($this->key));
        $this->instruments->holds->record($held, $this->instruments->labels($this->key, $end->value));
    }

    /** @param array<string, mixed> $attributes */
    private function start(string $name, int $kind, array $attributes): SpanInterface
    {
        $builder = $this->instruments->tracer->spanBuilder($name)->setSpanKind($kind);
        return $builder->setAttributes($attributes + $this->key)->startSpan();
    }

    private function endWait(string $command, float $waited, string $outcome): void
    {
        $this->wait->setAttributes(['db.operation.name' => $command, Instruments::OUTCOME => $outcome]);
        $this->wait->end();
        $this->instruments->waits->record($waited, $this->instruments->labels($this->key, $outcome));
    }

    private static function fail(SpanInterface $span, string $kind, LockException $why): void
    {
        $span->setAttribute('error.type', $kind);
        $span->setStatus(StatusCode::STATUS_ERROR, $why->getMessage());
    }

    /** A key as UTF-8, with escapes for bytes that are not. */
    private static function shown(string $key): string
    {
        if (preg_match('//u', $key) === 1) {
            return $key;
        }
        $escape = static fn (array $found): string => sprintf('\x%02x', ord($found[0]));
        return (string) preg_replace_callback('/[\x80-\xff]/', $escape, $key);
    }
}
