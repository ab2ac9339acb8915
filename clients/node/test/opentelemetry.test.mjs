// serverlock/opentelemetry: the spans and metrics of locks in memory, as OpenTelemetry's own SDK exports them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, beforeEach, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const packages = createRequire(`${built}/`);
const load = (name) => import(`file://${packages.resolve(name)}`);
const { context, SpanKind, SpanStatusCode } = packages('@opentelemetry/api');
const { AsyncLocalStorageContextManager } = await load('@opentelemetry/context-async-hooks');
const { MeterProvider, MetricReader } = await load('@opentelemetry/sdk-metrics');
const { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } = await load('@opentelemetry/sdk-trace');
const { Redis } = packages('ioredis');
const { LockBadArgumentError, Locks } = await import(`file://${built}/dist/index.js`);
const { telemetry } = await import(`file://${built}/dist/opentelemetry.js`);
const { Server } = await import(`file://${built}/dist/testing.js`);

const LEASE = 30_000;

class Reader extends MetricReader {
  async onForceFlush() {}
  async onShutdown() {}
}

let server, locks, exporter, providers, reader;

before(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
after(() => context.disable());

beforeEach(() => {
  server = new Server();
  exporter = new InMemorySpanExporter();
  reader = new Reader();
  const meterProvider = new MeterProvider({ readers: [reader] });
  const tracerProvider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  providers = { tracerProvider, meterProvider };
  locks = server.locks({ hooks: telemetry(providers) });
});

const spans = (name) => exporter.getFinishedSpans().filter((span) => span.name === name);
const secondsOf = ({ duration: [seconds, nanos] }) => seconds + nanos / 1e9;

/** Each data point: the metric, its attributes as text, and its sum. */
async function points() {
  const { resourceMetrics, errors } = await reader.collect();
  assert.deepEqual(errors, []);
  const all = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics);
  return all
    .flatMap(({ descriptor, dataPoints }) =>
      dataPoints.map(({ attributes, value }) =>
        [descriptor.name, ...Object.values(attributes), value.sum ?? value].join(' '),
      ),
    )
    .sort();
}

test('a lock that is acquired and released', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  await server.clock.advance(2000);
  assert((await points()).includes('serverlock.held 1'));
  await held.release();
  const [[wait], [hold]] = [spans('lock.wait'), spans('lock.hold')];
  assert.equal(wait.kind, SpanKind.CLIENT);
  assert.deepEqual(wait.attributes, {
    'db.system.name': 'redis',
    'db.operation.name': 'LOCK.ACQUIRE',
    'serverlock.key': 'report',
    'serverlock.outcome': 'granted',
  });
  assert.equal(hold.kind, SpanKind.INTERNAL);
  assert.deepEqual(hold.attributes, {
    'serverlock.key': 'report',
    'serverlock.token': held.token,
    'serverlock.outcome': 'released',
  });
  for (const { status, instrumentationScope } of [wait, hold]) {
    assert.equal(status.code, SpanStatusCode.UNSET);
    const { name, version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url)));
    assert.deepEqual([instrumentationScope.name, instrumentationScope.version], [name, version]);
  }
  assert.deepEqual(await points(), [
    'serverlock.held 0',
    'serverlock.hold.duration released 2',
    'serverlock.wait.duration granted 0',
  ]);
});

test("both spans are children of the caller's span, even of one that has ended", async () => {
  const tracer = providers.tracerProvider.getTracer('application');
  const other = await server.locks().lock('report', LEASE).acquire();
  const held = tracer.startActiveSpan('work', async (span) => {
    const waiting = locks.lock('report', LEASE, { wait: 60_000 }).acquire();
    span.end();
    return waiting;
  });
  await server.clock.advance(3000);
  await other.release();
  await server.clock.settle();
  await tracer.startActiveSpan('elsewhere', async () => (await held).release());
  const [[work], [wait], [hold]] = [spans('work'), spans('lock.wait'), spans('lock.hold')];
  for (const span of [wait, hold]) {
    assert.equal(span.parentSpanContext.spanId, work.spanContext().spanId);
    assert.equal(span.spanContext().traceId, work.spanContext().traceId);
  }
  assert.equal(Math.round(secondsOf(wait)), 3);
});

test('a refusal, a time-out and a cancelled attempt are no errors', async () => {
  const other = await server.locks().lock('report', LEASE).acquire();
  const waiting = locks.lock('report', LEASE, { wait: 1000 }).acquire();
  const abort = new AbortController();
  const cancelled = locks.lock('report', LEASE, { wait: 60_000 }).acquire({ signal: abort.signal });
  await assert.rejects(locks.lock('report', LEASE).acquire());
  const timedOut = assert.rejects(waiting);
  await server.clock.advance(2000);
  await timedOut;
  abort.abort(new Error('no longer needed'));
  await assert.rejects(cancelled, /no longer needed/);
  await other.release();
  const ends = spans('lock.wait').map(({ attributes, status }) => [attributes['serverlock.outcome'], status.code]);
  assert.deepEqual(ends, [
    ['refused', SpanStatusCode.UNSET],
    ['timeout', SpanStatusCode.UNSET],
    ['cancelled', SpanStatusCode.UNSET],
  ]);
  assert.deepEqual(spans('lock.hold'), []);
});

test("another holder's result is an outcome, and not an error", async () => {
  const tracer = providers.tracerProvider.getTracer('application');
  let compute;
  const first = server.locks().singleFlight('report', LEASE, () => new Promise((resolve) => (compute = resolve)));
  await server.clock.settle();
  const second = tracer.startActiveSpan('work', async (span) => {
    const waiting = locks.singleFlight('report', LEASE, () => 'second');
    span.end();
    return waiting;
  });
  await server.clock.advance(3000);
  compute('first');
  assert.equal(String(await first), 'first');
  assert.equal(String(await second), 'first');
  const [[work], [wait]] = [spans('work'), spans('lock.wait')];
  assert.deepEqual(wait.attributes, {
    'db.system.name': 'redis',
    'db.operation.name': 'LOCK.ACQUIRE',
    'serverlock.key': 'report',
    'serverlock.outcome': 'result',
  });
  assert.equal(wait.status.code, SpanStatusCode.UNSET);
  assert.equal(wait.parentSpanContext.spanId, work.spanContext().spanId);
  assert.equal(Math.round(secondsOf(wait)), 3);
  assert.deepEqual(await points(), ['serverlock.wait.duration result 3']);
});

test('an attempt that fails is an error, with its kind', async () => {
  server.refuse('report');
  await assert.rejects(locks.lock('report', LEASE).acquire());
  const [{ attributes, status }] = spans('lock.wait');
  assert.equal(attributes['error.type'], 'unavailable');
  assert.equal(attributes['serverlock.outcome'], 'unavailable');
  assert.equal(status.code, SpanStatusCode.ERROR);
});

test('a loss is an error and an event, and is counted once', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  server.lose(held);
  await held.release();
  const [{ attributes, status, events }, more] = spans('lock.hold');
  assert.equal(more, undefined);
  assert.equal(attributes['serverlock.outcome'], 'lost');
  assert.equal(attributes['error.type'], 'lost');
  assert.equal(status.code, SpanStatusCode.ERROR);
  assert.deepEqual(
    events.map(({ name }) => name),
    ['lock.lost'],
  );
  const found = await points();
  for (const point of ['serverlock.losses 1', 'serverlock.held 0', 'serverlock.hold.duration lost 0'])
    assert(found.includes(point), String(found));
});

test('a loss that only the release notices is one, too', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  server.expire('report');
  assert.equal(await held.release(), false);
  assert.equal(spans('lock.hold')[0].attributes['serverlock.outcome'], 'lost');
  assert((await points()).includes('serverlock.losses 1'));
});

test('a hold that the application has forgotten expires', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  await (async () => void (await locks.lock('report', LEASE).acquire()))();
  await until('it is collected', async () => {
    collect();
    return spans('lock.hold').length === 1;
  });
  assert.equal(spans('lock.hold')[0].attributes['serverlock.outcome'], 'expired');
  assert((await points()).includes('serverlock.held 0'));
});

test('several keys are a list, and the operation is that of the call', async () => {
  await locks.allOf(['{a}1', '{a}2'], LEASE).run(() => undefined);
  await assert.rejects(locks.recover(Buffer.from([0xff, 0]), LEASE).acquire());
  const [several, recover] = spans('lock.wait').map(({ attributes }) => attributes);
  assert.deepEqual(several['serverlock.keys'], ['{a}1', '{a}2']);
  assert.equal(several['serverlock.key'], undefined);
  assert.equal(several['db.operation.name'], 'LOCK.MACQUIRE');
  assert.equal(recover['serverlock.key'], '0xff00');
  assert.equal(recover['db.operation.name'], 'LOCK.RECOVER');
});

test("without the module, the operation is the script's function", async (t) => {
  const redis = new Redis({ port: await startServer((end) => t.after(end)) });
  t.after(() => redis.disconnect());
  const plain = new Locks(redis, { hooks: telemetry(providers), warnWithoutModule: false });
  t.after(() => plain.close());
  await plain.lock('report', LEASE).run(() => undefined);
  assert.equal(spans('lock.wait')[0].attributes['db.operation.name'], 'lock_acquire');
});

test('metrics have the key only if asked', async () => {
  const keyed = server.locks({ hooks: telemetry({ ...providers, keyAttribute: true }) });
  await keyed.lock('report', LEASE).run(() => undefined);
  assert.deepEqual(await points(), [
    'serverlock.held report 0',
    'serverlock.hold.duration released report 0',
    'serverlock.wait.duration granted report 0',
  ]);
});

test('options are checked', () => {
  for (const options of [{ keys: true }, { keyAttribute: 1 }, null])
    assert.throws(() => telemetry(options), LockBadArgumentError);
});
