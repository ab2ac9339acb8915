// Leases are measured on a clock that keeps running while the machine is suspended, whatever the wall clock is set to.
// A suspend, as a process sees it: the wall clock has moved on, and the timers' clock has not.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, beforeEach, test } from 'node:test';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockLostError, Locks } = await import(`file://${built}/dist/index.js`);
const { now } = await import(`file://${built}/dist/clock.js`);
const { Redis } = createRequire(`${built}/`)('ioredis');

const HOUR = 3_600_000;
const LEASE = 10 * HOUR;

const wall = Date.now;
let shift = 0;
Date.now = () => Math.floor(wall() + shift);

const ends = [];
let redis, locks;
before(async () => {
  redis = new Redis({ port: await startServer((end) => ends.push(end), '--loadmodule', module) });
  locks = new Locks(redis);
});
after(async () => {
  locks.close();
  redis.disconnect();
  for (const end of ends) await end();
});
beforeEach(() => redis.flushall());

test('a suspend that outlasts the lease loses the lock, for `check` at once, for the signal soon', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  held.check();
  const { signal } = held;
  shift += LEASE;
  assert.throws(() => held.check(), LockLostError);
  assert.equal(held.left(), 0);
  assert(signal.aborted);
});

test('the signal is aborted after a suspend even though nobody asks', async () => {
  const lost = [];
  const held = await locks.lock('report', LEASE, { onLost: (one) => lost.push(one) }).acquire();
  const { signal } = held;
  shift += LEASE;
  await until('it is aborted', () => signal.aborted);
  assert.deepEqual(lost, [held]);
});

test('a lock whose lease outlasts the suspend is renewed soon after it', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  shift += LEASE / 2;
  assert(held.left() < 0.5 * LEASE);
  await until('it is renewed', () => held.left() > 0.85 * LEASE);
  assert.match(await redis.info('commandstats'), /cmdstat_lock.extend:calls=1,/);
  held.check();
});

test('a step backwards does not lengthen a lease, and does not hide a suspend', async () => {
  const held = await locks.lock('report', LEASE).acquire();
  const before = held.left();
  shift -= 5 * HOUR;
  assert(held.left() <= before);
  held.check();
  shift += LEASE; // 5 hours of this only undo the step: the larger advance of the two clocks applies
  assert.throws(() => held.check(), LockLostError);
});

test('many readings count time once', () => {
  // The clock's reading lies between two monotonic readings: a busy machine may delay any of them.
  const [earliest, clock, latest] = [performance.now(), now(), performance.now()];
  const step = Math.random;
  let last = clock;
  for (let reading = 0; reading < 200_000; reading += 1) {
    shift = (shift + (step() - 0.5)) | 0; // the wall clock jitters by a millisecond
    const read = now();
    assert(read >= last);
    last = read;
  }
  const [before, end, behind] = [performance.now(), now(), performance.now()];
  const counted = end - clock;
  assert(counted >= before - latest && counted < behind - earliest + 50, `${counted} of ${behind - earliest} ms`);
});
