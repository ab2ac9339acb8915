// What the application passes in: callbacks that throw, signals shared by many attempts, arguments of the wrong type.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockBadArgumentError, Locks } = await import(`file://${built}/dist/index.js`);
const { Redis } = createRequire(`${built}/`)('ioredis');

const ends = [];
let redis;

before(async () => {
  redis = new Redis({ port: await startServer((end) => ends.push(end), '--loadmodule', module) });
});

after(async () => {
  redis.disconnect();
  for (const end of ends) await end();
});

const fails = () => {
  throw new Error('of the application');
};

/** Runs the function, and returns the Node warnings that it raises. An uncaught exception fails the test on its own. */
async function warned(run) {
  const warnings = [];
  const record = (warning) => warnings.push(warning.message);
  process.on('warning', record);
  await run();
  await new Promise((resolve) => setImmediate(resolve)); // warnings are emitted on the next tick
  process.off('warning', record);
  return warnings;
}

for (const [name, options, lockOptions] of [
  ['hook lost', { hooks: { lost: fails } }, {}],
  ['logger', { warn: fails }, {}],
  ['onLost', {}, { onLost: fails }],
  ['asynchronous onLost', {}, { onLost: async () => fails() }],
]) {
  test(`a loss stops the work even though the ${name} fails`, async () => {
    const locks = new Locks(redis, options);
    const warnings = await warned(async () => {
      const held = await locks.lock('report', 300, lockOptions).acquire();
      await redis.del('report');
      await until('the signal is aborted', () => held.signal.aborted);
      assert.equal(held.signal.reason, held.lost);
    });
    assert(
      warnings.some((text) => text.includes('of the application')),
      String(warnings),
    );
    locks.close();
  });
}

test('a hook that fails costs no lock', async () => {
  const locks = new Locks(redis, { hooks: { granted: fails, released: fails, refused: fails } });
  const warnings = await warned(async () => {
    const held = await locks.lock('report', 30_000).acquire();
    await assert.rejects(locks.lock('report', 30_000).acquire(), { name: 'LockRefusedError' });
    assert.equal(await held.release(), true);
  });
  assert.equal(warnings.length, 3, String(warnings));
  locks.close();
});

test('a leader whose callbacks fail is still notified of its loss, and campaigns again', async () => {
  const locks = new Locks(redis);
  const calls = [];
  const record = (what) => () => {
    calls.push(what);
    fails();
  };
  await warned(async () => {
    const leader = locks.leader('leader', 3000, { onElected: record('elected'), onLost: record('lost') }).start();
    await until('it leads', () => calls.length === 1);
    await redis.del('leader');
    await until('it leads again', () => calls.length === 3);
    await leader.stop();
  });
  assert.deepEqual(calls, ['elected', 'lost', 'elected', 'lost']);
  locks.close();
});

test('a leader is notified of its loss when its manager is closed', async () => {
  const locks = new Locks(redis);
  const calls = [];
  locks.leader('leader', 300, { onElected: () => calls.push('elected'), onLost: () => calls.push('lost') }).start();
  await until('it leads', () => calls.length === 1);
  locks.close();
  await until('it is notified', () => calls.length === 2);
});

test('many attempts that share a signal end with it, without a Node warning', async () => {
  const locks = new Locks(redis);
  const held = await locks.lock('report', 30_000).acquire();
  const given = new AbortController();
  const warnings = await warned(async () => {
    const waits = Array.from({ length: 50 }, () =>
      locks.lock('report', 30_000, { wait: 20_000 }).acquire({ signal: given.signal }),
    );
    const settled = Promise.allSettled(waits);
    await until('they wait', async () => (await redis.call('LOCK.INFO', 'report')).at(-3) === 50);
    given.abort(new Error('shutting down'));
    for (const { reason } of await settled) assert.equal(reason?.message, 'shutting down');
    await until('nobody waits', async () => (await redis.call('LOCK.INFO', 'report')).at(-3) === 0);
  });
  assert.deepEqual(warnings, []);
  await held.release();
  locks.close();
});

test('an argument of the wrong type is named, and nothing is sent', async () => {
  const locks = new Locks(redis);
  const lock = locks.lock('report', 30_000);
  const sent = async () => Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))[1]);
  const before = await sent();
  const calls = {
    keys: [
      () => locks.allOf('abc', 1000),
      () => locks.allOf(42, 1000),
      () => locks.allOf(Buffer.from('abc'), 1000),
      () => locks.allOf(null, 1000),
    ],
    wiat: [
      () => locks.lock('a', 1000, { wiat: 60 }),
      () => locks.leader('a', 1000, { wiat: 60 }),
      () => locks.allOf(['a'], 1000, { wiat: undefined }),
      () => new Locks(redis, { wiat: 60 }),
      () => lock.acquire({ wiat: 60 }),
      () => lock.run(() => 1, { wiat: 60 }),
      () => new Locks(redis, { hooks: { wiat: fails } }),
    ],
    "no 'wait'": [() => locks.recover('a', 1000, { wait: 60 }), () => lock.acquire({ wait: 60 })],
    session: [() => locks.lock('a', 1000, { session: 'yes' }), () => locks.lock('a', 1000, { session: null })],
    reentrant: [() => locks.lock('a', 1000, { reentrant: 1 })],
    "no 'reentrant'": [
      () => locks.recover('a', 1000, { reentrant: true }),
      () => locks.leader('a', 1000, { reentrant: true }),
      () => locks.once('a', 60_000, { reentrant: true }),
    ],
    fsync: [() => locks.lock('a', 1000, { fsync: 1 })],
    portable: [() => new Locks(redis, { portable: 'no' })],
    warnWithoutModule: [() => new Locks(redis, { warnWithoutModule: 0 })],
    await: [() => new Locks(Promise.resolve(redis))],
    options: [
      () => locks.lock('a', 1000, null),
      () => locks.lock('a', 1000, 5),
      () => locks.recover('a', 1000, 'x'),
      () => locks.leader('a', 1000, null),
      () => lock.acquire(AbortSignal.abort()),
      () => new Locks(redis, null),
    ],
    signal: [() => lock.acquire({ signal: 5 }), () => lock.run(() => 1, { signal: null })],
    work: [() => lock.run(), () => lock.run('work')],
    onLost: [() => locks.lock('a', 1000, { onLost: 5 }), () => locks.leader('a', 1000, { onLost: 'x' })],
    onElected: [() => locks.leader('a', 1000, { onElected: 5 })],
    'hooks.lost': [() => new Locks(redis, { hooks: { lost: 5 } })],
    warn: [() => new Locks(redis, { warn: console })],
    client: [() => new Locks(null), () => new Locks(undefined), () => new Locks('redis://localhost')],
  };
  for (const [name, all] of Object.entries(calls)) {
    for (const call of all) {
      const error = await Promise.resolve()
        .then(call)
        .then(
          () => undefined,
          (thrown) => thrown,
        );
      assert(error instanceof LockBadArgumentError && error.message.includes(name), `${call}: ${error}`);
    }
  }
  assert.equal(await sent(), before + 1, 'the second INFO');
  const held = await lock.acquire();
  for (const words of [
    ['SET', undefined],
    ['SET', 'a', {}],
    ['SET', 'a', null],
  ])
    await assert.rejects(held.fenced(...words), LockBadArgumentError);
  await held.release();
  locks.close();
});
