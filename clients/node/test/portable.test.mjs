// A server without the module, and one that gets it while attempts poll.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, afterEach, beforeEach, test } from 'node:test';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { Locks } = await import(`file://${built}/dist/index.js`);
const { Redis } = createRequire(`${built}/`)('ioredis');

const ends = [];
after(async () => {
  for (const end of ends.reverse()) await end();
});

const warnings = [];
process.on('warning', (warning) => warnings.push(warning));

let redis, all;
beforeEach(async () => {
  const client = new Redis({ port: await startServer((end) => ends.push(end), '--enable-module-command', 'yes') });
  ends.push(() => client.disconnect());
  redis = client;
  all = [];
  warnings.length = 0;
});
afterEach(() => {
  for (const locks of all) locks.close();
});

function opened(options) {
  const locks = new Locks(redis, options);
  all.push(locks);
  return locks;
}

async function use(locks) {
  for (let turn = 0; turn < 3; turn += 1) await (await locks.lock('report', 30_000).acquire()).release();
  await new Promise((resolve) => setImmediate(resolve)); // warnings are emitted on the next tick
}

test('a missing module raises a Node warning, once for each manager', async () => {
  await use(opened());
  assert.deepEqual(
    warnings.map(({ name, code }) => [name, code]),
    [['ServerlockWarning', 'SERVERLOCK_NO_MODULE']],
  );
  await use(opened());
  assert.equal(warnings.length, 2);
});

test('the `warn` option gets the warning instead', async () => {
  const warned = [];
  await use(opened({ warn: (text) => warned.push(text) }));
  assert.equal(warned.length, 1);
  assert.match(warned[0], /no LOCK/);
  assert.deepEqual(warnings, []);
});

test('the warning can be turned off', async () => {
  const warned = [];
  await use(opened({ warnWithoutModule: false, warn: (text) => warned.push(text) }));
  await use(opened({ warnWithoutModule: false }));
  assert.deepEqual([warned, warnings], [[], []]);
});

test('attempts that poll switch to a module that is loaded in the meantime, and join its queue', async () => {
  const locks = opened({ warnWithoutModule: false });
  const held = await locks.lock('report', 600_000).acquire();
  const order = [];
  const wait = async (number) => {
    const got = await locks.lock('report', 600_000, { wait: 600_000, owner: `w${number}` }).acquire();
    order.push(number);
    return got;
  };
  const waits = [0, 1, 2].map(wait);
  await until('they poll', async () => /cmdstat_evalsha:calls=([1-9]\d)/.test(await redis.info('commandstats')));
  await redis.call('MODULE', 'LOAD', module);
  const info = async () => {
    const fields = await redis.call('LOCK.INFO', 'report', 'FULL');
    return Object.fromEntries(fields.flatMap((name, at) => (at % 2 ? [] : [[name, fields[at + 1]]])));
  };
  await until('they are queued', async () => (await info()).waiters === 3);
  const queue = (await info()).queue.map((fields) => fields[fields.indexOf('owner') + 1]);
  await held.release();
  await redis.config('RESETSTAT');
  for (let turn = 0; turn < 3; turn += 1) {
    await until('one has it', () => order.length > turn);
    assert.equal(`w${order[turn]}`, queue[turn], 'in queue order');
    assert.equal(await (await waits[order[turn]]).release(), true);
  }
  assert(!/cmdstat_eval/.test(await redis.info('commandstats')), 'nobody polls now');
});

test('while the module is missing, one attempt every few seconds asks for it', async () => {
  const locks = opened({ warnWithoutModule: false });
  const held = await locks.lock('report', 600_000).acquire();
  const polled = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0);
  const asked = async () => Number(/errorstat_ERR:count=(\d+)/.exec(await redis.info('errorstats'))?.[1] ?? 0);
  const given = new AbortController();
  const waits = Array.from({ length: 20 }, () =>
    locks.lock('report', 600_000, { wait: 600_000 }).acquire({ signal: given.signal }),
  );
  const settled = Promise.allSettled(waits);
  await until('they poll', async () => (await polled()) > 40);
  const [began, before] = [performance.now(), await asked()];
  await until('one has asked twice', async () => (await asked()) >= before + 2);
  const seconds = (performance.now() - began) / 1000;
  assert((await asked()) <= before + 2 + seconds / 5, `${(await asked()) - before} in ${seconds} s`);
  given.abort();
  await settled;
  await held.release();
});
