// serverlock/testing: the production manager over an in-memory server, whose time the test moves.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

const built = process.env.SERVERLOCK;
const errors = await import(`file://${built}/dist/index.js`);
const { Server } = await import(`file://${built}/dist/testing.js`);

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const LEASE = 30_000;

let server, locks, other;
beforeEach(() => {
  server = new Server();
  [locks, other] = [server.locks(), server.locks()];
});

/** The kind of the promise's error; undefined if there is none. */
const outcome = (promise) =>
  promise.then(
    () => undefined,
    (error) => (error instanceof errors.LockError ? error.code : error),
  );
const kindOf = (work) => {
  try {
    work();
  } catch (error) {
    return error.code;
  }
  return undefined;
};

// M1

test('a manager is the same as in production', async () => {
  assert(locks instanceof errors.Locks);
  const held = await locks.lock('a', LEASE).acquire();
  assert(held instanceof errors.Held);
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), 'refused');
  assert(await held.release());
  assert.equal(await outcome(held.release()), 'misuse');
  assert.equal(
    kindOf(() => locks.lock('a', LEASE, { wiat: 5 })),
    'argument',
  );
  assert.equal(await outcome(locks.lock('a', LEASE).run(() => locks.lock('a', LEASE).acquire())), 'misuse');
  const again = locks.lock('a', LEASE, { reentrant: true });
  assert.equal(await again.run(() => again.run(() => 5)), 5);
  locks.close();
  assert.equal(await outcome(locks.lock('a', LEASE).acquire()), 'misuse');
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), undefined);
});

test('servers share nothing, and options are checked', async () => {
  await locks.lock('a', LEASE).acquire();
  assert.equal(await outcome(new Server().locks().lock('a', LEASE).acquire()), undefined);
  for (const wrong of [
    () => server.locks({ renewal: 'thread' }),
    () => server.locks({ wait: 5 }),
    () => server.locks(null),
    () => server.refuse('a', 'lost'),
    () => server.expire(5),
  ])
    assert.equal(kindOf(wrong), 'argument', String(wrong));
  assert.equal(await outcome(server.clock.advance(-1)), 'argument');
});

test('hooks are called', async () => {
  const calls = [];
  const hook = (name) => (key, ms) => calls.push([name, key, ms]);
  const hooks = { granted: hook('granted'), released: hook('released'), lost: hook('lost') };
  const watched = server.locks({ hooks });
  const held = await watched.lock('a', LEASE).acquire();
  await server.clock.advance(HOUR);
  await held.release();
  assert.deepEqual(calls, [
    ['granted', "'a'", 0],
    ['released', "'a'", HOUR],
  ]);
});

// M2

test('waiters are served in order, and tokens grow', async () => {
  const first = await locks.lock('a', LEASE).acquire();
  const order = [];
  const waits = [1, 2, 3].map(async (number) => {
    const held = await server.locks().lock('a', LEASE, { wait: HOUR }).acquire();
    order.push(number);
    return held;
  });
  await server.clock.settle();
  assert.equal(server.waiting('a'), 3);
  let { token } = first;
  let before = first;
  for (const [at, wait] of waits.entries()) {
    await before.release();
    before = await wait;
    assert.equal(order.length, at + 1);
    assert(before.token > token);
    token = before.token;
  }
  assert.deepEqual(order, [1, 2, 3]);
  assert.equal(server.waiting('a'), 0);
});

test('kinds of locks, sessions, once and leaders', async () => {
  const readers = [await locks.shared('p', LEASE).acquire(), await other.shared('p', LEASE).acquire()];
  assert.equal(await outcome(locks.lock('p', LEASE).acquire()), 'refused');
  for (const held of readers) assert(await held.release());
  await locks.limit('q', 1, LEASE).acquire();
  assert.equal(await outcome(other.limit('q', 1, LEASE).acquire()), 'refused');
  const all = await locks.allOf(['a', Buffer.from([0, 255])], LEASE).acquire();
  assert.equal(await outcome(other.lock(Buffer.from([0, 255]), LEASE).acquire()), 'refused');
  assert.equal(await all.verify(), 0.9 * LEASE);
  const session = await locks.lock('s', LEASE, { session: true }).acquire();
  const next = other.lock('s', LEASE, { session: true, wait: HOUR }).acquire();
  await server.clock.settle();
  assert(await session.release());
  assert(await (await next).release());
  const tick = () => locks.once('t', MINUTE).run((_, held) => held.tick);
  const ran = await tick();
  assert.deepEqual([ran.outcome, (await tick()).outcome], ['ran', 'elsewhere']);
  await server.clock.advance(MINUTE);
  assert.deepEqual(await tick(), { outcome: 'ran', value: ran.value + 1 });
  const elected = [];
  const leaders = [locks, other].map((one, at) =>
    one.leader('l', LEASE, { onElected: () => elected.push(at) }).start(),
  );
  await server.clock.settle();
  await leaders[0].stop();
  await server.clock.settle();
  assert.deepEqual(elected, [0, 1]);
});

test('fenced commands run while the lock is held', async () => {
  const held = await locks.lock('a', LEASE).acquire();
  assert.equal(await held.fenced('SET', 'n', '5'), 'OK');
  assert.equal(await held.fenced('INCR', 'n'), 6);
  assert.equal(await held.fenced('GET', 'n'), '6');
  assert.equal(await held.fenced('DEL', 'n'), 1);
  assert.equal(await held.fenced('GET', 'n'), null);
  server.expire('a');
  assert.equal(await outcome(held.fenced('GET', 'n')), 'lost');
});

test('what the server lacks is unavailable', async () => {
  assert.equal(await outcome(locks.lock('a', LEASE, { replicas: 1 }).acquire()), 'unavailable');
  assert.equal(await outcome(locks.lock('a', LEASE, { fsync: true }).acquire()), 'unavailable');
  const held = await locks.lock('a', LEASE).acquire();
  assert.equal(await outcome(held.fenced('HSET', 'h', 'a', 'b')), 'unavailable');
});

// M3

test('time stands still until it is moved', async () => {
  const began = server.clock.now();
  const held = await locks.lock('a', LEASE).acquire();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(held.left(), 0.9 * LEASE);
  await server.clock.advance(5000);
  assert.equal(held.left(), 0.9 * LEASE - 5000);
  assert.equal(server.clock.now(), began + 5000);
});

test('a lock is renewed for maxHold, and a wait times out', async () => {
  const [kept, bounded] = await Promise.all([
    locks.lock('kept', LEASE).acquire(),
    locks.lock('bounded', LEASE, { maxHold: MINUTE }).acquire(),
  ]);
  const wait = outcome(other.lock('kept', LEASE, { wait: HOUR }).acquire());
  const next = other.lock('bounded', LEASE, { wait: HOUR }).acquire();
  await server.clock.advance(HOUR - 1);
  assert(kept.isHeld);
  assert.equal(
    kindOf(() => bounded.check()),
    'lost',
  );
  assert((await next).isHeld);
  let isOver = false;
  void wait.then(() => {
    isOver = true;
  });
  await server.clock.settle();
  assert(!isOver);
  await server.clock.advance(1);
  assert.equal(await wait, 'timeout');
});

test('what falls due is done in chronological order', async () => {
  const order = [];
  await locks.lock('a', LEASE).acquire();
  for (const ms of [3000, 1000, 2000])
    void other
      .lock('a', LEASE, { wait: ms })
      .acquire()
      .catch(() => order.push([ms, server.clock.now()]));
  const began = server.clock.now();
  await server.clock.advance(HOUR);
  assert.deepEqual(
    order,
    [1000, 2000, 3000].map((ms) => [ms, began + ms]),
  );
});

test('a released lock is kept for atLeast', async () => {
  const held = await locks.lock('a', LEASE, { atLeast: MINUTE }).acquire();
  assert(await held.release());
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), 'refused');
  await server.clock.advance(2 * MINUTE);
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), undefined);
});

// M4

test('an expired lease passes the lock on, and its holder finds out', async () => {
  const held = await locks.lock('a', LEASE, { owner: 'alice' }).acquire();
  const next = other.lock('a', LEASE, { wait: HOUR, details: true }).acquire();
  await server.clock.settle();
  server.expire('a');
  const { predecessor } = await next;
  assert.deepEqual(predecessor, { token: held.token, owner: 'alice', overdue: 0 });
  assert(held.isHeld);
  await server.clock.advance(LEASE / 3);
  assert.equal(held.lost.code, 'lost');
  assert.equal(await held.release(), false);
});

test('others get the lock a margin after the lease, or at once if the test ends it', async () => {
  for (const ends of [1000, 0]) {
    await locks.lock('a', 1000, { maxHold: 1 }).acquire();
    if (!ends) server.expire('a');
    let granted;
    void other
      .lock('a', 1000, { wait: HOUR, maxHold: 1 })
      .acquire()
      .then((held) => {
        granted = held;
      });
    await server.clock.advance(ends && 1999);
    assert.equal(granted !== undefined, !ends);
    await server.clock.advance(ends && 1);
    assert(granted.isHeld);
    await granted.release();
  }
});

test('only an expired lock is recovered', async () => {
  assert.match(
    (
      await other
        .recover('a', LEASE)
        .acquire()
        .catch((error) => error)
    ).message,
    /the lock is free/,
  );
  const held = await locks.lock('a', LEASE).acquire();
  assert.equal(await outcome(other.recover('a', LEASE).acquire()), 'refused');
  server.expire('a');
  const recovered = await other.recover('a', LEASE).acquire();
  assert.equal(recovered.predecessor.token, held.token);
  assert.equal(await outcome(held.verify()), 'lost');
});

// M5

test('a hold that is lost is reported at once, and its key is free', async () => {
  const lost = [];
  const held = await locks.lock('a', LEASE, { onLost: (one) => lost.push(one) }).acquire();
  const { signal } = held;
  const next = other.lock('a', LEASE, { wait: HOUR }).acquire();
  await server.clock.settle();
  server.lose(held);
  assert.deepEqual([lost, signal.aborted, kindOf(() => held.check())], [[held], true, 'lost']);
  assert((await next).token > held.token);
  assert.equal(await held.release(), false);
  assert.equal(
    kindOf(() => new Server().lose(held)),
    'argument',
  );
});

test('a loss stops the work of a scope', async () => {
  let began = () => undefined;
  const body = new Promise((resolve) => {
    began = resolve;
  });
  const run = locks.lock('a', LEASE).run(async (signal, held) => {
    began(held);
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  });
  server.lose(await body);
  assert.equal(await outcome(run), 'lost');
});

// M6

test('a key is refused until it is allowed', async () => {
  const held = await locks.lock('a', LEASE).acquire();
  const wait = outcome(other.lock('a', LEASE, { wait: HOUR }).acquire());
  await server.clock.settle();
  server.refuse('a');
  assert.equal(await wait, 'unavailable');
  for (const options of [{}, { wait: HOUR }, { session: true, wait: HOUR }])
    assert.equal(await outcome(other.lock('a', LEASE, options).acquire()), 'unavailable');
  held.check();
  assert.equal(await outcome(held.extend()), 'unavailable');
  await server.clock.advance(LEASE);
  assert.equal(
    kindOf(() => held.check()),
    'lost',
  );
  server.refuse('a', 'denied');
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), 'denied');
  assert.equal(await outcome(other.lock('b', LEASE).acquire()), undefined);
  server.allow('a');
  await server.clock.advance(1000);
  assert.equal(await outcome(other.lock('a', LEASE).acquire()), undefined);
});

test('nothing keeps the process alive, and an aborted wait leaves nothing', async () => {
  const held = await locks.lock('a', LEASE).acquire();
  const given = new AbortController();
  const wait = outcome(other.lock('a', LEASE, { wait: HOUR }).acquire({ signal: given.signal }));
  await server.clock.settle();
  given.abort('over');
  assert.equal(await wait, 'over');
  await server.clock.settle();
  assert.equal(server.waiting('a'), 0);
  assert(await held.release());
  assert(Object.values(other._engine.census()).every((count) => count === 0));
});
