// A node-redis pool: locks use a few of its connections, and no late call keeps others from their turn.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { Relay } from './relay.mjs';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { Locks } = await import(`file://${built}/dist/index.js`);
const require = createRequire(`${built}/`);
const { createClientPool } = require('redis');
const { Redis } = require('ioredis');

const ends = [];
let port, plain;
before(async () => {
  port = await startServer((end) => ends.push(end), '--loadmodule', module);
  plain = new Redis({ port });
});
after(async () => {
  plain.disconnect();
  for (const end of ends.reverse()) await end();
});

async function pool(at) {
  const made = createClientPool({ url: `redis://127.0.0.1:${at}` }, { acquireTimeout: 60_000 });
  made.on('error', () => undefined);
  await made.connect();
  ends.push(() => made.destroy());
  return made;
}

test('a thousand callers use a few connections', async () => {
  const client = await pool(port);
  const locks = new Locks(client, { timeout: 60_000 });
  let most = 0;
  await Promise.all(
    Array.from({ length: 1000 }, async (_, number) => {
      const held = await locks.lock(`k${number}`, 60_000).acquire();
      most = Math.max(most, client.clientsInUse);
      assert.equal(await held.release(), true);
    }),
  );
  // Four calls at a time; the pool takes a connection back a moment after its reply. Without the bound it is 100.
  assert(most <= 8, `${most} in use at a time`);
  assert(client.totalClients <= 20, `${client.totalClients} connections`);
  locks.close();
});

test('waiters are queued, and are notified over one subscription', async () => {
  const client = await pool(port);
  const locks = new Locks(client);
  const held = await locks.lock('queue', 60_000).acquire();
  const waits = Array.from({ length: 20 }, async () =>
    (await locks.lock('queue', 60_000, { wait: 60_000 }).acquire()).release(),
  );
  await until('they are queued', async () => (await plain.call('LOCK.INFO', 'queue')).at(-3) === 20);
  await until('one is subscribed', async () => (await plain.call('PUBSUB', 'CHANNELS', 'serverlock:*')).length === 1);
  assert.equal(await held.release(), true);
  assert.deepEqual(new Set(await Promise.all(waits)), new Set([true]));
  locks.close();
});

test('calls that get no reply give up their turn', async () => {
  const relay = await Relay.to(port, (end) => ends.push(end));
  const client = await pool(relay.port);
  const [patient, locks] = [new Locks(client, { timeout: 60_000 }), new Locks(client, { timeout: 300 })];
  await Promise.all([1, 2, 3, 4].map(async (number) => (await patient.lock(`r${number}`, 60_000).acquire()).release()));
  patient.close();
  relay.halfOpen();
  // Each half-open pool connection fails the calls that it gets; new connections work.
  let granted = 0;
  await until('locks are granted again', async () => {
    const tries = Array.from({ length: 10 }, (_, number) => locks.lock(`s${granted} ${number}`, 60_000).acquire());
    for (const { status } of await Promise.allSettled(tries)) if (status === 'fulfilled') granted += 1;
    return granted >= 5;
  });
  locks.close();
});

test('a storm of callers that give up leaves no turn taken', async () => {
  const client = await pool(port);
  const locks = new Locks(client, { timeout: 60_000 });
  for (let round = 0; round < 20; round += 1) {
    await Promise.allSettled(
      Array.from({ length: 200 }, async (_, number) => {
        const given = new AbortController();
        setTimeout(() => given.abort(), Math.random() ** 3 * 20);
        await (
          await locks.lock(`t${number % 7}`, 60_000, { wait: 60_000 }).acquire({ signal: given.signal })
        ).release();
      }),
    );
  }
  for (let number = 0; number < 7; number += 1) {
    await until('it is free', async () => (await plain.exists(`t${number}`)) === 0);
    assert.equal(await (await locks.lock(`t${number}`, 60_000).acquire()).release(), true);
  }
  assert(
    Object.values(locks._engine.census()).every((count) => count === 0),
    JSON.stringify(locks._engine.census()),
  );
  locks.close();
});
