// What the loop knows about the lease of a lock that a thread renews.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

const built = process.env.SERVERLOCK;
const { Lease } = await import(`file://${built}/dist/lease.js`);
const { ReadLease, WrittenLease } = await import(`file://${built}/dist/thread-lease.js`);
const { borrowClock, lendClock, now } = await import(`file://${built}/dist/clock.js`);
const { Shared } = await import(`file://${built}/dist/shared.js`);

let loop, thread;
beforeEach(() => {
  const told = {
    extending: (...words) => thread.extendingElsewhere(...words),
    extended: (...words) => thread.extendedElsewhere(...words),
  };
  loop = new ReadLease(new Lease(1, 30), 30, told);
  thread = new WrittenLease(1, 30, loop.memory);
});

const renew = (sent) => {
  thread.extending(sent, 30);
  thread.extended(sent, 30, true);
};

test('the loop sees the last renewal of several', () => {
  for (const sent of [11, 21, 31]) renew(sent);
  assert.deepEqual([loop.sent, loop.end, loop.lostAt], [31, 61, 58]);
});

test('a renewal without a reply does not lengthen the lease', () => {
  renew(11);
  thread.extending(21, 30);
  assert.equal(loop.end, 41);
  thread.extended(21, 30, false);
  thread.extending(23, 30);
  assert.equal(loop.end, 41);
  thread.extended(23, 30, true);
  assert.equal(loop.end, 53);
});

test('a renewal on its way shortens a longer lease, for both', () => {
  loop.extending(2, 1000);
  loop.extended(2, 1000, true);
  assert.deepEqual([loop.end, thread.end], [1002, 1002]);
  thread.extending(400, 30);
  assert.deepEqual([loop.end, thread.end], [430, 430]);
});

test('of two on their way, the one that ends first applies until one is confirmed later', () => {
  loop.extending(10, 5);
  thread.extending(11, 30);
  thread.extended(11, 30, true);
  assert.deepEqual([loop.end, thread.end], [15, 15]);
  loop.extended(10, 5, false); // the server may have run it last
  assert.deepEqual([loop.end, thread.end], [15, 15]);
  renew(12);
  assert.deepEqual([loop.end, thread.end], [42, 42]);
});

test('the loop renews when the thread has died', () => {
  renew(11);
  thread.extending(21, 30);
  assert.equal(loop.end, 41);
  loop.settle();
  assert.equal(loop.end, 41);
  loop.extending(25, 30);
  loop.extended(25, 30, true);
  assert.equal(loop.end, 55);
});

test('the loop sees that the grant has ended', () => {
  assert(!loop.isGone);
  thread.markGone();
  assert(loop.isGone);
});

test('a suspend that one thread notices counts for both, once', () => {
  const { memory, ahead } = lendClock();
  const both = new Shared(memory);
  const before = now();
  both.raise(0, both.get(0) + 3_600_000); // as the other thread does
  assert(now() >= before + 3_600_000);
  both.raise(0, 3_600_000);
  assert(now() < before + 3_700_000);
  const lent = now();
  borrowClock({ memory, ahead });
  const borrowed = now();
  assert(borrowed >= lent - 2 && borrowed < lent + 100_000, `${borrowed - lent}`);
});
