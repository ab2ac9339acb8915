// Results as bytes: over each library, from the module's replies, and from the key where they are stored without it.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { Cluster, module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockBadArgumentError, Locks } = await import(`file://${built}/dist/index.js`);
const { queueOf, resultOf } = await import(`file://${built}/dist/request.js`);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createClient, createClientPool, createCluster } = require('redis');

const LEASE = 600_000;
const BYTES = Buffer.from([0x34, 0x32, 0x20, 0, 0xff, 0xc3, 0x0d, 0x0a]);

const ends = [];
const atEnd = (end) => ends.unshift(end);
let withModule, without;
before(async () => {
  withModule = await startServer(atEnd, '--loadmodule', module);
  without = await startServer(atEnd);
});
after(async () => {
  for (const end of ends) await end();
});

function ioredis(client) {
  client.on('error', () => undefined);
  atEnd(() => client.disconnect());
  return client;
}
async function nodeRedis(client) {
  client.on('error', () => undefined);
  await client.connect();
  atEnd(() => client.destroy());
  return client;
}
const urlOf = (port) => `redis://127.0.0.1:${port}`;
const OPEN = {
  ioredis: (port) => ioredis(new Redis({ port })),
  'ioredis with a prefix': (port) => ioredis(new Redis({ port, keyPrefix: 'app:' })),
  'ioredis with pipelines': (port) => ioredis(new Redis({ port, enableAutoPipelining: true })),
  'node-redis': (port) => nodeRedis(createClient({ url: urlOf(port) })),
  'node-redis with RESP3': (port) => nodeRedis(createClient({ url: urlOf(port), RESP: 3 })),
  'a pool of node-redis': (port) => nodeRedis(createClientPool({ url: urlOf(port) })),
};
const CLUSTERS = {
  'a cluster of ioredis': (port) => ioredis(new Redis.Cluster([{ host: '127.0.0.1', port }])),
  'a cluster of node-redis': (port) => nodeRedis(createCluster({ rootNodes: [{ url: urlOf(port) }] })),
};

async function managersOf(open, port) {
  const managers = [new Locks(await open(port), { warnWithoutModule: false })];
  managers.push(new Locks(await open(port), { warnWithoutModule: false }));
  for (const one of managers) atEnd(() => one.close());
  return managers;
}

const never = () => assert.fail('it computes');

/** Asks for each key from two managers. The one that computes does so until the other waits for all of them. */
async function passesOn([one, two], plain, keys) {
  let asked = 0;
  const { wire } = two._engine;
  const { call } = wire;
  wire.call = function (key, words, ...rest) {
    const reply = call.call(this, key, words, ...rest);
    if (words[0] === 'GET') reply.finally(() => (asked += 1)).catch(() => undefined);
    return reply;
  };
  let [begin, finish] = [() => undefined, () => undefined];
  const isWaiting = new Promise((resolve) => (finish = resolve));
  let left = keys.length;
  const begun = new Promise((resolve) => (begin = resolve));
  const compute = async () => {
    left -= 1;
    if (left === 0) begin();
    await isWaiting;
    return BYTES;
  };
  const computed = keys.map((key) => one.singleFlight(key, LEASE, compute));
  await begun;
  const waiting = keys.map((key) => two.singleFlight(key, LEASE, never));
  const { prefix } = wire;
  for (const key of keys) await until(`it waits for ${key}`, () => waits(plain, prefix + key));
  if (plain.isPortable) await until('each has looked for a result', () => asked >= keys.length);
  finish();
  for (const value of await Promise.all([...computed, ...waiting])) assert.deepEqual(value, BYTES);
  wire.call = call;
}

async function waits(plain, key) {
  if (plain.isPortable) return (await plain.call(key, 'ZCARD', queueOf(Buffer.from(key)))) > 0;
  const reply = await plain.call(key, 'LOCK.INFO', key);
  return reply[reply.indexOf('waiters') + 1] === 1;
}

function plainOf(port, isPortable) {
  const client = ioredis(new Redis({ port }));
  return { isPortable, call: (_, ...words) => client.call(...words), client };
}

test('the key of a result is named like the queue', () => {
  const named = (key) => resultOf(Buffer.from(key, 'latin1'))?.toString('latin1');
  assert.equal(named('report'), 'report:result:{report}');
  assert.equal(named('{42}:report'), '{42}:report:result');
  assert.equal(named('a:queue'), 'a:queue:result:{a:queue}');
  assert.equal(named('\xff\0'), '\xff\0:result:{\xff\0}');
  assert.equal(named('a{b'), undefined);
});

// A manager waits for one key on a connection that blocks, and for several keys with messages.
async function passesOnAloneAndTogether(managers, plain, name) {
  await passesOn(managers, plain, [`${name} alone`]);
  await passesOn(
    managers,
    plain,
    ['a', 'b', 'c'].map((key) => `${name} ${key}`),
  );
}

for (const [name, open] of Object.entries(OPEN)) {
  describe(name, () => {
    test('a wait that blocks, and waits with messages', async () => {
      const [managers, plain] = [await managersOf(open, withModule), plainOf(withModule, false)];
      await passesOnAloneAndTogether(managers, plain, name);
      const stats = await plain.client.info('commandstats');
      assert(!/cmdstat_lock\.cancel/.test(stats), 'nothing is cancelled');
      assert(!/cmdstat_get/.test(stats), 'nothing is stored');
    });

    test('without the module', async () => {
      const [managers, plain] = [await managersOf(open, without), plainOf(without, true)];
      await passesOnAloneAndTogether(managers, plain, name);
      const left = await plain.client.keys(`*${name}*`);
      assert.equal(left.length, 4, 'only the results are left');
      for (const one of left) {
        assert.match(one, /:result:\{.*\}$/);
        const value = await plain.client.getBuffer(one);
        assert.match(value.subarray(0, 17).toString(), /^\d{16} $/);
        assert.deepEqual(value.subarray(17), BYTES);
      }
    });
  });
}

for (const [name, open] of Object.entries(CLUSTERS)) {
  test(name, async () => {
    const cluster = await Cluster.start(atEnd);
    const managers = await managersOf(open, cluster.ports[0]);
    const call = (key, command, ...words) => cluster.call(command, key, ...words.slice(1));
    await passesOn(managers, { isPortable: false, call }, ['a', 'b', 'c', 'd']);
  });
}

test('without the module, a free lock needs no GET, and only a name with a queue has a result', async () => {
  const plain = plainOf(without, true);
  const [locks] = await managersOf(OPEN.ioredis, without);
  await locks.singleFlight('free', LEASE, () => 'first');
  await plain.client.config('RESETSTAT');
  const calls = async (command) => {
    const stat = new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await plain.client.info('commandstats'));
    return Number(stat?.[1] ?? 0);
  };
  assert.equal(String(await locks.singleFlight('free', LEASE, () => 'second')), 'second');
  assert.match(await plain.client.get('free:result:{free}'), /^\d{16} second$/);
  const sets = await calls('set'); // the script sets the lock as well
  assert.equal(String(await locks.singleFlight('a{b', LEASE, () => 'third')), 'third');
  assert.equal((await calls('set')) - sets, sets - 1);
  assert.deepEqual(await plain.client.keys('a{b*'), []);
});

test('the caller gets its value if the server refuses the release', async () => {
  const plain = plainOf(withModule, false);
  await plain.client.call('ACL', 'SETUSER', 'app', 'on', 'nopass', '~*', '&*', '+@all', '-lock.release');
  const client = ioredis(new Redis({ port: withModule, username: 'app', password: 'x' }));
  const warnings = [];
  const locks = new Locks(client, { warn: (text) => warnings.push(text) });
  assert.equal(String(await locks.singleFlight('denied', LEASE, () => 'value')), 'value');
  assert.match(warnings.join(), /the value of 'denied' was computed, but its lock was not released: .*NOPERM/);
  locks.close();
});

test('renewed in a thread, it needs maxHold', async () => {
  const locks = new Locks(await OPEN.ioredis(withModule), { renewal: 'thread' });
  await assert.rejects(locks.singleFlight('thread', LEASE, never), LockBadArgumentError);
  assert.equal(String(await locks.singleFlight('thread', LEASE, () => 'value', { maxHold: LEASE })), 'value');
  locks.close();
});
