// One value for many callers: those whose wait ends, that are aborted or closed, or that lose the lock.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { computing, LEASE, never, outcome, place } from './flying.mjs';

const { LockLostError } = await import(`file://${process.env.SERVERLOCK}/dist/index.js`);

const HOUR = 3_600_000;

let server, locks, other, settle, isFree, nothingIsLeft;
beforeEach(() => {
  ({ server, locks, other, settle, isFree, nothingIsLeft } = place());
});

test('each caller has its own wait', async () => {
  const holder = await computing(other);
  const waits = [10_000, 20_000, 5000, HOUR];
  const ended = [];
  const calls = waits.map((wait, at) =>
    locks.singleFlight('page', LEASE, never, { wait }).catch((error) => {
      ended.push([at, server.clock.now() - began, error.code]);
      throw error;
    }),
  );
  const began = server.clock.now();
  const all = Promise.allSettled(calls);
  for (let step = 0; step < 25; step += 1) {
    await server.clock.advance(1000);
    assert.equal(server.waiting('page'), 1);
  }
  assert.deepEqual(ended, [
    [2, 5000, 'timeout'],
    [0, 10_000, 'timeout'],
    [1, 20_000, 'timeout'],
  ]);
  holder.end('late');
  assert.equal(String((await all)[3].value), 'late');
  nothingIsLeft();
});

test('a caller whose signal is aborted leaves, wherever it is', async () => {
  const ended = AbortSignal.abort('ended');
  assert.equal(await outcome(locks.singleFlight('page', LEASE, never, { signal: ended })), 'ended');
  const holder = await computing(other);
  const [leader, follower, shared] = [0, 1, 2].map(() => new AbortController());
  const ask = (one, signal, compute = never) => one.singleFlight('page', LEASE, compute, { signal });
  const calls = [ask(locks, leader.signal), ask(locks, follower.signal), ask(locks, shared.signal, () => 'mine')];
  const last = ask(locks, undefined);
  await settle();
  follower.abort('follower');
  assert.equal(await outcome(calls[1]), 'follower');
  leader.abort('leader');
  assert.equal(await outcome(calls[0]), 'leader');
  await settle();
  assert.equal(server.waiting('page'), 1);
  holder.end(new Error('enough'));
  await outcome(holder.value);
  assert.deepEqual((await Promise.all([calls[2], last])).map(String), ['mine', 'mine']);
  assert(await isFree());
  nothingIsLeft();
});

test('a caller that leaves cancels its timer', async () => {
  const { clock } = locks._engine;
  const { after } = clock;
  let timers = 0;
  clock.after = (ms, work) => {
    timers += 1;
    const cancel = after.call(clock, ms, () => {
      timers -= 1;
      work();
    });
    return () => {
      if (cancel()) timers -= 1;
    };
  };
  const holder = await computing(locks);
  const before = timers;
  const given = new AbortController();
  const call = outcome(locks.singleFlight('page', LEASE, never, { signal: given.signal }));
  await settle();
  assert.equal(timers, before + 1);
  given.abort('left');
  assert.equal(await call, 'left');
  assert.equal(timers, before);
  holder.end('value');
  await holder.value;
});

test('a signal that is aborted during the computation stops it, and the next one computes', async () => {
  const given = new AbortController();
  const holder = await computing(locks, { signal: given.signal });
  const theirs = async () => {
    await settle(); // then the other caller is in the queue
    return 'theirs';
  };
  const calls = [locks.singleFlight('page', LEASE, never), other.singleFlight('page', LEASE, theirs)];
  await settle();
  assert.equal(holder.signal.aborted, false);
  given.abort('stop');
  assert.equal(holder.signal.reason, 'stop');
  assert.equal(holder.held.signal.aborted, false, 'the lock is not lost');
  assert.equal(await outcome(holder.value), 'stop');
  assert.deepEqual((await Promise.all(calls)).map(String), ['theirs', 'theirs']);
  // The error that `fetch` and the like throw when their signal is aborted stands for its reason.
  const stopped = new AbortController();
  const work = () => {
    stopped.abort('why');
    throw new DOMException('This operation was aborted', 'AbortError');
  };
  assert.equal(await outcome(locks.singleFlight('page', LEASE, work, { signal: stopped.signal })), 'why');
  const early = new AbortController();
  const eager = server.locks({ hooks: { granted: () => early.abort('early') } });
  assert.equal(await outcome(eager.singleFlight('page', LEASE, never, { signal: early.signal })), 'early');
  // A value that is there is not thrown away.
  const late = new AbortController();
  const compute = () => {
    late.abort();
    return 'there';
  };
  assert.equal(String(await locks.singleFlight('page', LEASE, compute, { signal: late.signal })), 'there');
  assert(await isFree());
  nothingIsLeft();
});

test('the reason of a signal concerns only its caller, even if it is an error of a lock', async () => {
  const holder = await computing(other);
  const given = new AbortController();
  const first = locks.singleFlight('page', LEASE, never, { signal: given.signal });
  const second = locks.singleFlight('page', LEASE, never);
  await settle();
  given.abort(new LockLostError("'outer'", 'lost'));
  assert.equal(await outcome(first), 'lost');
  await settle();
  holder.end('value');
  assert.equal(String(await second), 'value');
});

test('other errors of the attempt go to all of its callers', async () => {
  for (const [kind, ends] of [
    ['unavailable', () => server.refuse('page')],
    ['misuse', () => locks.close()],
  ]) {
    const holder = await computing(other);
    const calls = [1, 2, 3].map(() => outcome(locks.singleFlight('page', LEASE, never)));
    await settle();
    ends();
    assert.deepEqual(await Promise.all(calls), [kind, kind, kind]);
    server.allow('page');
    holder.end('value');
    await holder.value;
    await settle();
    nothingIsLeft();
  }
  assert.equal(await outcome(locks.singleFlight('page', LEASE, never)), 'misuse');
});

test('closing the manager ends those that wait, and the computation goes on', async () => {
  const holder = await computing(locks);
  const follower = outcome(locks.singleFlight('page', LEASE, never));
  const theirs = other.singleFlight('page', LEASE, never);
  await settle();
  locks.close();
  assert.equal(await follower, 'misuse');
  assert.equal(holder.signal.aborted, false);
  holder.end('value');
  assert.deepEqual((await Promise.all([holder.value, theirs])).map(String), ['value', 'value']);
  assert(await isFree());
});

test('a loss stops the computation, but a value needs no lock', async () => {
  const losses = [];
  const holder = await computing(locks, { onLost: (held) => losses.push(held) });
  const next = locks.singleFlight('page', LEASE, () => 'next');
  await settle();
  server.lose(holder.held);
  assert(holder.signal.aborted);
  assert.equal(await outcome(holder.value), 'lost');
  assert.deepEqual(losses, [holder.held]);
  assert.equal(String(await next), 'next');
  const aborted = locks.singleFlight('page', LEASE, (signal, held) => {
    server.lose(held);
    assert(signal.reason instanceof LockLostError);
    throw new DOMException('This operation was aborted', 'AbortError');
  });
  assert.equal(await outcome(aborted), 'lost');
  const value = locks.singleFlight('page', LEASE, (_, held) => {
    server.lose(held);
    return 'there';
  });
  assert.equal(String(await value), 'there');
  const released = locks.singleFlight('page', LEASE, async (_, held) => {
    await held.release();
    return 'released';
  });
  assert.equal(String(await released), 'released');
  assert(await isFree());
  nothingIsLeft();
});

test('a thousand callers are aborted at random, and nothing is left', async () => {
  let computed = 0;
  const compute = async () => {
    computed += 1;
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
    return 'value';
  };
  const call = async (number) => {
    const given = new AbortController();
    const ends = Math.floor(Math.random() * 20);
    const abort = async () => {
      for (let turn = 0; turn < ends; turn += 1) await new Promise(setImmediate);
      given.abort('aborted');
    };
    if (Math.random() < 0.7) void abort();
    const from = number % 2 ? locks : other;
    return from.singleFlight(`page ${number % 3}`, LEASE, compute, { signal: given.signal }).catch((error) => error);
  };
  const got = await Promise.all(Array.from({ length: 1000 }, (_, number) => call(number)));
  assert.deepEqual([...new Set(got.map(String))].sort(), ['aborted', 'value']);
  assert(computed < 100, `${computed} computed`);
  for (const number of [0, 1, 2]) assert(await isFree(`page ${number}`));
  nothingIsLeft();
});
