// serverlock/node-cron against node-cron's published interface, in memory: what node-cron calls, and in what order.
// tests/frameworks/node runs it in node-cron itself.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

const built = process.env.SERVERLOCK;
const { LockBadArgumentError, LockUnavailableError } = await import(`file://${built}/dist/index.js`);
const { LockCoordinator } = await import(`file://${built}/dist/node-cron.js`);
const { Server } = await import(`file://${built}/dist/testing.js`);

const DATE = new Date('2026-01-02T03:00:00.000Z');
const FIRE = `nightly:${DATE.toISOString()}`;
const LEASE = 30_000;

let server, one, two;
beforeEach(() => {
  server = new Server();
  [one, two] = [new LockCoordinator(server.locks()), new LockCoordinator(server.locks())];
});

test('one process runs a fire', async () => {
  const all = await Promise.all([one, two, one].map((coordinator) => coordinator.shouldRun(FIRE, LEASE)));
  assert.deepEqual(all, [true, false, false]);
  assert.equal(await two.shouldRun('nightly:later', LEASE), true);
});

test('a fire that has run does not run again in a process whose clock is late by less than the lease', async () => {
  await one.shouldRun(FIRE, LEASE);
  await server.clock.advance(100);
  await one.onComplete(FIRE);
  await server.clock.advance(LEASE - 200);
  assert.equal(await two.shouldRun(FIRE, LEASE), false);
  await server.clock.advance(2000); // the lock is gone: it does not stay in the server
  assert.equal(await two.shouldRun(FIRE, LEASE), true);
});

test('a run that takes longer than the lease keeps its lock', async () => {
  await one.shouldRun(FIRE, LEASE);
  await server.clock.advance(100 * LEASE);
  assert.equal(await two.shouldRun(FIRE, LEASE), false);
  await one.onComplete(FIRE);
  assert.equal(await two.shouldRun(FIRE, LEASE), true);
});

test('the task gets the hold of its fire, until it ends', async () => {
  const context = { date: DATE, task: { name: 'nightly' } };
  assert.equal(one.held(context), undefined);
  await one.shouldRun(FIRE, LEASE);
  assert(one.held(context).token > 0);
  assert.equal(two.held(context), undefined);
  await one.onComplete(FIRE);
  assert.equal(one.held(context), undefined);
});

test('an unknown outcome rejects, so that node-cron skips the fire', async () => {
  server.refuse(`cron:${FIRE}`);
  await assert.rejects(one.shouldRun(FIRE, LEASE), LockUnavailableError);
});

test('a loss is reported, and the end of the run is no error', async () => {
  const lost = [];
  const locks = server.locks();
  const coordinator = new LockCoordinator(locks, { onLost: (key, error) => lost.push([key, error.code]) });
  await coordinator.shouldRun(FIRE, LEASE);
  server.lose(coordinator.held({ date: DATE, task: { name: 'nightly' } }));
  assert.deepEqual(lost, [[FIRE, 'lost']]);
  await coordinator.onComplete(FIRE);
  await coordinator.onComplete(FIRE);
});

test('a lock is not renewed after maxHold, for background tasks that die', async () => {
  const coordinator = new LockCoordinator(server.locks(), { maxHold: 60_000 });
  await coordinator.shouldRun(FIRE, LEASE);
  await server.clock.advance(60_000 + LEASE + 2000);
  assert.equal(await two.shouldRun(FIRE, LEASE), true);
});

test('options are checked when the coordinator is built', () => {
  const locks = server.locks();
  for (const [options, name] of [
    [{ prefx: 'a' }, 'prefx'],
    [{ prefix: 5 }, 'prefix'],
    [{ onLost: 5 }, 'onLost'],
    [{ maxHold: 0 }, 'maxHold'],
    [{ owner: 'a b' }, 'owner'],
  ]) {
    const check = (error) => error instanceof LockBadArgumentError && error.message.includes(name);
    assert.throws(() => new LockCoordinator(locks, options), check);
  }
});
