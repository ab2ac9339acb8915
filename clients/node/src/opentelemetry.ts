/**
 * Locks as OpenTelemetry traces and metrics: `new Locks(client, { hooks: telemetry() })`.
 *
 * Spans: `lock.wait` from the call to its result, and `lock.hold` from the grant to its end; the caller's span is the
 * parent of both. A lock that is refused, or not granted in time, is not an error. Metrics: `serverlock.wait.duration`
 * and `serverlock.hold.duration` in seconds, `serverlock.losses`, and `serverlock.held`.
 */

import {
  type Attributes,
  context,
  type MeterProvider,
  metrics,
  type Span,
  SpanKind,
  SpanStatusCode,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { booleanOf, optionsOf } from './checks.js';
import type { Held } from './hold.js';
import type { Hooks, LockEvent } from './options.js';

const NAME = 'serverlock';
/** That of package.json; a test compares the two. */
const VERSION = '1.0.0';

/** Where traces and metrics go, and what they show. */
export interface TelemetryOptions {
  /** Default: the global one. */
  tracerProvider?: TracerProvider;
  /** Default: the global one. */
  meterProvider?: MeterProvider;
  /**
   * Whether metrics have the lock's key as an attribute. Only for few different keys: each one creates time series.
   * Spans always have it. Default: false.
   */
  keyAttribute?: boolean;
}

const OPTIONS: Readonly<Record<keyof TelemetryOptions, true>> = {
  tracerProvider: true,
  meterProvider: true,
  keyAttribute: true,
};

/** Outcomes of attempts that are not errors. */
const EXPECTED = new Set(['granted', 'refused', 'timeout', 'cancelled']);
/** Buckets of durations, in seconds: the default ones are for milliseconds. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200];

type HoldOutcome = 'released' | 'lost' | 'expired';

/** A hold's span. It does not refer to the hold, which can then be collected. */
interface Holding {
  readonly span: Span;
  readonly keys: Attributes;
  readonly began: number;
}

const keysOf = ({ keys }: LockEvent): Attributes =>
  keys.length === 1 ? { 'serverlock.key': keys[0] as string } : { 'serverlock.keys': [...keys] };

/** Hooks that record the manager's locks. */
export function telemetry(options: TelemetryOptions = {}): Required<Hooks> {
  optionsOf(options, '', OPTIONS);
  const withKeys = booleanOf(options.keyAttribute, 'keyAttribute', '', false);
  const tracer = (options.tracerProvider ?? trace).getTracer(NAME, VERSION);
  const meter = (options.meterProvider ?? metrics).getMeter(NAME, VERSION);
  const duration = (name: string, description: string) =>
    meter.createHistogram(name, { unit: 's', description, advice: { explicitBucketBoundaries: BUCKETS } });
  const waits = duration('serverlock.wait.duration', 'How long attempts to get a lock took');
  const holds = duration('serverlock.hold.duration', 'How long locks were held');
  const losses = meter.createCounter('serverlock.losses', { unit: '{loss}', description: 'Locks that were lost' });
  const heldNow = meter.createUpDownCounter('serverlock.held', { unit: '{lock}', description: 'Locks that are held' });

  const holdings = new WeakMap<Held, Holding>();
  const labels = (keys: Attributes, outcome?: string): Attributes => ({
    ...(outcome && { 'serverlock.outcome': outcome }),
    ...(withKeys && keys),
  });

  function waited(event: LockEvent, ms: number, outcome: string, error?: Error): void {
    const now = Date.now();
    const keys = keysOf(event);
    const attributes = {
      'db.system.name': 'redis',
      'db.operation.name': event.operation,
      ...keys,
      'serverlock.outcome': outcome,
    };
    // The hooks run in the caller's context, so its span is the parent.
    const span = tracer.startSpan('lock.wait', { kind: SpanKind.CLIENT, startTime: now - ms, attributes });
    if (error && !EXPECTED.has(outcome)) {
      span.setAttribute('error.type', outcome);
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    }
    span.end(now);
    waits.record(ms / 1000, labels(keys, outcome), context.active());
  }

  function ended({ span, keys, began }: Holding, outcome: HoldOutcome, ms = Date.now() - began): void {
    span.setAttribute('serverlock.outcome', outcome);
    span.end();
    holds.record(ms / 1000, labels(keys, outcome), trace.setSpan(context.active(), span));
    heldNow.add(-1, labels(keys));
  }

  /** A hold that the application has forgotten is not renewed: its lease expires. */
  const forgotten = new FinalizationRegistry<Holding>((holding) => ended(holding, 'expired'));

  /** The hold's span, which is now to end; undefined if it has ended. */
  function take(held: Held | undefined): Holding | undefined {
    const holding = held && holdings.get(held);
    if (!holding) return undefined;
    holdings.delete(held);
    forgotten.unregister(holding);
    return holding;
  }

  function lost(holding: Holding, ms: number, why: string): void {
    losses.add(1, labels(holding.keys));
    holding.span.addEvent('lock.lost');
    holding.span.setAttribute('error.type', 'lost');
    holding.span.setStatus({ code: SpanStatusCode.ERROR, message: why });
    ended(holding, 'lost', ms);
  }

  return {
    granted: (_key, ms, event) => {
      waited(event, ms, 'granted');
      const held = event.held as Held;
      const keys = keysOf(event);
      const attributes = { ...keys, 'serverlock.token': held.token };
      const span = tracer.startSpan('lock.hold', { kind: SpanKind.INTERNAL, attributes });
      const holding = { span, keys, began: Date.now() };
      holdings.set(held, holding);
      forgotten.register(held, holding, holding);
      heldNow.add(1, labels(keys));
    },
    refused: (_key, ms, error, event) => waited(event, ms, error.code, error),
    cancelled: (_key, ms, event) => waited(event, ms, 'cancelled'),
    result: (_key, ms, event) => waited(event, ms, 'result'),
    lost: (_key, ms, error, { held }) => {
      const holding = take(held);
      if (holding) lost(holding, ms, error.message);
    },
    // After a loss that was reported before, the span has ended.
    released: (_key, ms, inTime, { held }) => {
      const holding = take(held);
      if (!holding) return;
      if (inTime) ended(holding, 'released', ms);
      else lost(holding, ms, 'its grant had ended before it was released');
    },
  };
}
