// ioredis's `keyPrefix` is added once to a lock's key, a script's keys and the channel.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { Cluster, module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockLostError, Locks } = await import(`file://${built}/dist/index.js`);
const { Redis } = createRequire(`${built}/`)('ioredis');

const ends = [];
const atEnd = (end) => ends.unshift(end);
after(async () => {
  for (const end of ends) await end();
});

/** Returns a client with the prefix, a function that sends a plain command to a key's server, and all keys. */
const PLACES = {
  async 'with the module'() {
    return single('--loadmodule', module);
  },
  async 'without the module'() {
    return single();
  },
  async 'in a cluster, with a prefix of its own'() {
    return inCluster({ keyPrefix: 'app:' });
  },
  async 'in a cluster, with a prefix of its nodes'() {
    return inCluster({ redisOptions: { keyPrefix: 'app:' } });
  },
};

async function single(...words) {
  const port = await startServer(atEnd, ...words);
  const [client, plain] = [new Redis({ port, keyPrefix: 'app:' }), new Redis({ port })];
  atEnd(() => {
    for (const one of [client, plain]) one.disconnect();
  });
  return { client, plain: (_, ...words) => plain.call(...words), keys: () => plain.keys('*') };
}

let cluster;
async function inCluster(options) {
  cluster ??= await Cluster.start(atEnd);
  const client = new Redis.Cluster([{ host: '127.0.0.1', port: cluster.ports[0] }], options);
  client.on('error', () => undefined);
  atEnd(() => client.disconnect());
  const plain = async (key, ...words) => (await cluster.owner(key)).call(...words);
  return { client, plain, keys: async () => (await Promise.all(cluster.nodes.map((node) => node.keys('*')))).flat() };
}

for (const [name, open] of Object.entries(PLACES)) {
  describe(name, () => {
    let client, plain, keys, locks;
    before(async () => {
      ({ client, plain, keys } = await open());
      locks = new Locks(client, { warnWithoutModule: false });
    });
    after(() => locks.close());

    test('a lock has its prefix once, from the grant to the release', async () => {
      const lock = locks.lock('{x}', 30_000);
      const held = await lock.acquire();
      assert.deepEqual(await keys(), ['app:{x}']);
      await held.extend(60_000);
      assert((await held.verify()) > 40_000);
      assert.equal(await held.fenced('SET', '{x}:done', 'yes'), 'OK');
      assert.equal(await plain('app:{x}', 'GET', 'app:{x}:done'), 'yes');
      assert.equal(await held.fenced('INCRBY', Buffer.from('{x}:count'), 5), 5);
      assert.equal(await plain('app:{x}', 'GET', 'app:{x}:count'), '5');
      assert.equal(await held.fenced('RENAME', '{x}:done', '{x}:old'), 'OK');
      assert.equal(await client.get('{x}:old'), 'yes');
      assert.equal(await held.release(), true);
      assert.deepEqual((await keys()).sort(), ['app:{x}:count', 'app:{x}:old']);
      await client.del('{x}:count', '{x}:old');
    });

    test('an attempt that gives up leaves no key', async () => {
      const held = await locks.lock('{x}', 30_000).acquire();
      const given = new AbortController();
      const waits = [1, 2, 3].map(() => locks.lock('{x}', 30_000, { wait: 20_000 }).acquire({ signal: given.signal }));
      const settled = Promise.allSettled(waits);
      given.abort();
      await settled;
      await held.release();
      assert.deepEqual(await keys(), []);
    });

    test('waiters are served', async () => {
      const first = await locks.lock('{x}', 30_000).acquire();
      const waits = [1, 2, 3].map(async () => (await locks.lock('{x}', 30_000, { wait: 60_000 }).acquire()).release());
      if (name !== 'without the module') {
        const waiters = async () => {
          const fields = await plain('app:{x}', 'LOCK.INFO', 'app:{x}');
          return fields[fields.indexOf('waiters') + 1];
        };
        await until('they wait', async () => (await waiters()) === 3);
        if (!name.includes('cluster')) {
          await until('the channel has the prefix', async () =>
            (await plain('', 'PUBSUB', 'CHANNELS')).some((one) => one.startsWith('app:serverlock:')),
          );
        }
      }
      await first.release();
      assert.deepEqual(await Promise.all(waits), [true, true, true]);
      assert.deepEqual(await keys(), []);
    });

    test('a lock that is taken away is lost', async () => {
      const held = await locks.lock('{x}', 30_000).acquire();
      await client.del('{x}');
      await assert.rejects(held.fenced('SET', '{x}:done', 'yes'), LockLostError);
      assert.equal(await client.get('{x}:done'), null);
      assert.equal(await held.release(), false);
    });
  });
}
