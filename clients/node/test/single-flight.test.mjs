// One value for many callers: who computes, and who gets what.

import assert from 'node:assert/strict';
import { AsyncResource } from 'node:async_hooks';
import { beforeEach, test } from 'node:test';
import { computing, intercept, LEASE, never, outcome, place } from './flying.mjs';

const { ConnectionLost } = await import(`file://${process.env.SERVERLOCK}/dist/failures.js`);

const HOUR = 3_600_000;
const BYTES = Buffer.from([0, 255, 13, 10]);
const AS_TEXT = BYTES.toString('latin1');

let server, locks, other, settle, isFree, nothingIsLeft;
beforeEach(() => {
  ({ server, locks, other, settle, isFree, nothingIsLeft } = place());
});

test('one computes, and all that wait get the same bytes', async () => {
  const values = [
    [BYTES, Buffer.from(AS_TEXT, 'latin1')],
    ['', Buffer.alloc(0)],
    ['42 pagés', Buffer.from('42 pagés')],
    [new Uint8Array([7, 8]).subarray(1), Buffer.from([8])],
    [Promise.resolve('later'), Buffer.from('later')],
  ];
  for (const [value, bytes] of values) {
    const holder = await computing(locks);
    const waiting = [locks, locks, other, other, server.locks()].map((from) => from.singleFlight('page', LEASE, never));
    await settle();
    assert.equal(server.waiting('page'), 2, 'each manager has one attempt');
    holder.end(value);
    const got = await Promise.all([holder.value, ...waiting]);
    for (const one of got) {
      assert.deepEqual(one, bytes, "a caller that changes its value changes no other's");
      if (one.length > 0) one[0] ^= 1;
    }
    assert(await isFree());
  }
  assert.equal(String(await locks.singleFlight('page', LEASE, () => 'anew')), 'anew');
  nothingIsLeft();
});

test('a value that is changed before a late release is passed on as it was', async () => {
  const bytes = Buffer.from('before');
  const holder = await computing(locks);
  const waiting = other.singleFlight('page', LEASE, never);
  await settle();
  let failures = 2; // then the release is sent again in the background
  intercept(locks, (words) => {
    if (words[0] === 'LOCK.RELEASE' && failures-- > 0)
      throw new ConnectionLost(new Error('no reply'), new Promise(() => undefined));
  });
  holder.end(bytes);
  await holder.value.then((value) => value.fill('x'));
  bytes.fill('y');
  assert.equal(server.waiting('page'), 1);
  await server.clock.advance(1000);
  assert.equal(String(await waiting), 'before');
});

test('a caller that comes once the value is there begins a new attempt', async () => {
  let second;
  intercept(locks, (words) => {
    if (words[0] === 'LOCK.RELEASE') second ??= locks.singleFlight('page', LEASE, () => 'second');
  });
  assert.equal(String(await locks.singleFlight('page', LEASE, () => 'first')), 'first');
  assert.equal(String(await second), 'second');
});

test('bad arguments are named, and nothing is sent', async () => {
  const before = server.clock.now();
  const bad = {
    key: [5, LEASE, never],
    lease: ['page', 0, never],
    compute: ['page', LEASE],
    options: ['page', LEASE, never, { session: true }],
    wait: ['page', LEASE, never, { wait: 0 }],
    maxHold: ['page', LEASE, never, { maxHold: 0 }],
    owner: ['page', LEASE, never, { owner: 'two words' }],
    onLost: ['page', LEASE, never, { onLost: 5 }],
    signal: ['page', LEASE, never, { signal: 5 }],
  };
  const activity = locks._engine.clock.activity;
  for (const [name, args] of Object.entries(bad)) {
    const error = await locks.singleFlight(...args).catch((error) => error);
    assert.equal(error.code, 'argument', name);
    assert.match(error.message, new RegExp(`\\b${name}\\b`));
  }
  assert.equal(locks._engine.clock.activity, activity);
  assert.equal(server.clock.now(), before);
  nothingIsLeft();
});

test('what is neither text nor bytes concerns only its caller', async () => {
  for (const wrong of [undefined, null, 42, ['a'], { toString: () => 'a' }, new Uint16Array(2)]) {
    const holder = await computing(locks);
    const next = locks.singleFlight('page', LEASE, () => 'next');
    await settle();
    holder.end(wrong);
    const error = await holder.value.catch((error) => error);
    assert.equal(error.code, 'argument');
    assert.match(error.message, /'page': compute returned/);
    assert.equal(String(await next), 'next');
    assert(await isFree());
  }
});

test('if a caller fails, the one that has waited longest computes', async () => {
  const first = await computing(locks);
  const elsewhere = computing(other);
  await settle();
  const second = computing(locks);
  const third = locks.singleFlight('page', LEASE, never);
  await settle();
  first.end(new Error('enough'));
  assert.equal((await outcome(first.value)).message, 'enough');
  const theirs = await elsewhere; // it is the first in the queue
  await settle();
  theirs.end(new Error('enough'));
  assert.equal((await outcome(theirs.value)).message, 'enough');
  const last = await second;
  last.end('second');
  assert.deepEqual((await Promise.all([last.value, third])).map(String), ['second', 'second']);
  assert(await isFree());
  nothingIsLeft();
});

test('asking for the same key while computing is misuse', async () => {
  let asked;
  const outside = AsyncResource.bind(() => {
    asked = locks.singleFlight('page', LEASE, () => 'outside');
  });
  const nested = [];
  const value = await locks.singleFlight('page', LEASE, async (_, held) => {
    const again = () => outcome(locks.singleFlight('page', LEASE, never));
    nested.push(await again(), await outcome(locks.lock('page', LEASE, { reentrant: true }).acquire()));
    assert.equal(String(await locks.singleFlight('part', LEASE, again)), 'misuse');
    server.lose(held); // otherwise it would wait for itself
    nested.push(await again());
    nested.push(await locks.lock('inner', LEASE).run(again));
    return 'value';
  });
  assert.deepEqual([String(value), ...nested], ['value', 'misuse', 'misuse', 'misuse', 'misuse']);
  const within = await locks.lock('page', LEASE).run(async () => {
    const ask = () => outcome(locks.singleFlight('page', LEASE, never));
    const alone = await ask();
    void outside();
    await settle();
    return [alone, await ask()];
  });
  assert.deepEqual(within, ['misuse', 'misuse'], 'alone, and while somebody else asks');
  assert.equal(String(await asked), 'outside');
  let later;
  await locks.singleFlight('page', LEASE, () => {
    later = settle().then(() => locks.singleFlight('page', LEASE, () => 'later'));
    return 'now';
  });
  assert.equal(String(await later), 'later', 'what was started there is a caller like any other');
  nothingIsLeft();
});

test('a result calls its own hook, and no other', async () => {
  const calls = [];
  let last;
  const hook =
    (name) =>
    (...args) => {
      calls.push(name);
      last = args;
    };
  const watched = server.locks({
    hooks: Object.fromEntries(
      ['granted', 'refused', 'cancelled', 'result', 'lost', 'released'].map((name) => [name, hook(name)]),
    ),
  });
  const holder = await computing(locks);
  const given = new AbortController();
  const waiting = watched.singleFlight('page', LEASE, never, { signal: given.signal });
  await settle();
  await server.clock.advance(2000);
  intercept(watched, (words) => words.includes('RESULT') && given.abort()); // too late
  holder.end('value');
  assert.equal(String(await waiting), 'value');
  assert.deepEqual(calls, ['result']);
  assert.deepEqual(last, ["'page'", 2000, { keys: ['page'], operation: 'LOCK.ACQUIRE', held: undefined }]);
  await watched.singleFlight('page', LEASE, () => 'own');
  assert.deepEqual(calls, ['result', 'granted', 'released']);
});

test('each computes a value that is too long to be passed on', async () => {
  for (const [size, computes] of [
    [65_536, false],
    [65_537, true],
  ]) {
    const holder = await computing(locks);
    const waiting = other.singleFlight('page', LEASE, computes ? () => 'theirs' : never);
    const shares = locks.singleFlight('page', LEASE, never);
    await settle();
    holder.end(Buffer.alloc(size));
    assert.equal((await waiting).length, computes ? 6 : size);
    assert.deepEqual([(await holder.value).length, (await shares).length], [size, size]);
    assert(await isFree());
  }
});

test('a result is given to copies for two seconds, and a cancel does not take it back', async () => {
  const { wire } = locks._engine;
  const call = (...words) => wire.call(undefined, words);
  const token = await call('LOCK.ACQUIRE', 'page', 'PX', LEASE, 'ID', 1);
  const copy = () => call('LOCK.ACQUIRE', 'page', 'PX', LEASE, 'WAIT', HOUR, 'ID', 7, 'NOTIFY', 'c', 'RESULT');
  assert.equal(await copy(), 'WAITING');
  const connection = await wire.connect();
  const messages = [];
  await connection.subscribe('c', (message) => messages.push(message));
  assert.equal(await call('LOCK.RELEASE', 'page', token, 'RESULT', BYTES), 1);
  assert.deepEqual(messages, ['result 7 page']);
  assert.equal(await call('LOCK.CANCEL', 'page', 7), 0);
  assert.deepEqual([await copy(), await copy()], [[BYTES], [BYTES]]);
  await server.clock.advance(2001);
  assert.equal(typeof (await copy()), 'number', 'a new attempt');
});
