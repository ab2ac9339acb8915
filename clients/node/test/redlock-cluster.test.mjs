// `serverlock/redlock` over ioredis's and node-redis's cluster clients.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Cluster, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const {
  default: Redlock,
  ExecutionError,
  Lock,
  ResourceLockedError,
} = await import(pathToFileURL(`${built}/dist/redlock.js`).href);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createCluster } = require('redis');

const LEASE = 30_000;
const HASTY = { retryCount: 2, retryDelay: 50, retryJitter: 0 };

const ends = [];
const atEnd = (end) => ends.unshift(end);
let cluster;
before(async () => {
  cluster = await Cluster.start(atEnd);
});
after(async () => {
  for (const end of ends) await end();
});

const OPEN = {
  ioredis() {
    const client = new Redis.Cluster([{ host: '127.0.0.1', port: cluster.ports[0] }]);
    client.on('error', () => undefined);
    atEnd(() => client.disconnect());
    return client;
  },
  async 'node-redis'() {
    const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${cluster.ports[0]}` }] });
    client.on('error', () => undefined);
    await client.connect();
    atEnd(() => client.destroy());
    return client;
  },
};

/** One key for each master. */
async function keysOfAll(prefix) {
  const keys = new Map();
  for (let number = 0; keys.size < 3; number += 1)
    keys.set(await cluster.owner(`${prefix}${number}`), `${prefix}${number}`);
  return [...keys.values()];
}

const waiters = async (key) => {
  const fields = await cluster.call('LOCK.INFO', key);
  return Array.isArray(fields) ? fields[fields.indexOf('waiters') + 1] : fields.waiters;
};
const isFree = async (key) => (await cluster.call('EXISTS', key)) === 0;

for (const library of Object.keys(OPEN)) {
  describe(`a cluster with ${library}`, () => {
    let redlock, other;
    before(async () => {
      redlock = new Redlock([await OPEN[library]()]);
      other = new Redlock([await OPEN[library]()]);
    });

    async function isTaken(attempt) {
      const error = await attempt.then(
        () => assert.fail('it does not fail'),
        (error) => error,
      );
      assert(error instanceof ExecutionError, String(error));
      const [vote] = (await error.attempts[0]).votesAgainst.values();
      assert(vote instanceof ResourceLockedError, String(vote));
    }

    test('a lock on any master is held, extended and released', async () => {
      for (const key of await keysOfAll('free')) {
        const lock = await redlock.acquire([key], LEASE);
        await isTaken(other.acquire([key], LEASE, HASTY));
        const longer = await lock.extend(2 * LEASE);
        assert((await cluster.call('LOCK.CHECK', key, longer.value)) > LEASE);
        await longer.release();
        assert(await isFree(key));
      }
    });

    test('several resources are in one slot, or refused', async () => {
      const lock = await redlock.acquire(['{two}a', '{two}b'], LEASE);
      await isTaken(other.acquire(['{two}b', '{two}c'], LEASE, HASTY));
      await (await lock.extend(LEASE)).release();
      assert((await isFree('{two}a')) && (await isFree('{two}b')) && (await isFree('{two}c')));
      const apart = (await keysOfAll('apart')).slice(0, 2);
      const error = await redlock.acquire(apart, LEASE, HASTY).catch((error) => error);
      assert(error instanceof ExecutionError && /slot/i.test(error.message), String(error));
      for (const key of apart) assert(await isFree(key));
    });

    test('waiters on any master are queued', async () => {
      for (const key of await keysOfAll('queue')) {
        const lock = await redlock.acquire([key], LEASE);
        const order = [];
        const waits = [];
        for (const [number, from] of [other, redlock, other].entries()) {
          const wait = async () => {
            const got = await from.acquire([key], LEASE, { retryCount: -1 });
            order.push(number);
            return got.release();
          };
          waits.push(wait());
          await until('it is queued', async () => (await waiters(key)) === number + 1);
        }
        await lock.release();
        await Promise.all(waits);
        assert.deepEqual(order, [0, 1, 2]);
      }
    });

    test('`using` renews a lock on any master', async () => {
      const keys = await keysOfAll('using');
      const use = (key) =>
        redlock.using([key], 6000, { automaticExtensionThreshold: 300 }, async (signal) => {
          const fields = await cluster.call('LOCK.INFO', key);
          const left = () => cluster.call('LOCK.CHECK', key, fields[fields.indexOf('token') + 1]);
          await until('part of the lease has passed', async () => (await left()) < 5000);
          await until('it is renewed', async () => (await left()) > 5400);
          return signal.aborted;
        });
      assert.deepEqual(
        await Promise.all(keys.map(use)),
        keys.map(() => false),
      );
      for (const key of keys) assert(await isFree(key));
    });

    test('a lock is restored from its value through another client', async () => {
      for (const key of await keysOfAll('value')) {
        const lock = await redlock.acquire([key], LEASE);
        await (await new Lock(other, [key], lock.value, [], lock.expiration).extend(LEASE)).release();
        await isTaken(lock.release());
      }
    });

    test('a lock and its waiters move with their slot', async () => {
      const key = `moves ${library}`;
      const lock = await redlock.acquire([key], LEASE);
      const next = other.acquire([key], LEASE, { retryCount: -1 });
      await until('it is queued', async () => (await waiters(key)) === 1);
      await cluster.move(key);
      const copy = new Lock(other, [key], lock.value, [], lock.expiration);
      await (await copy.extend(LEASE)).extend(LEASE);
      await (await lock.extend(LEASE)).release();
      await (await next).release();
      assert(await isFree(key));
    });
  });
}
