// A command without a key goes to the server of the key that it is about, over either library.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { Cluster } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { ioredisWire } = await import(`file://${built}/dist/ioredis.js`);
const { nodeRedisWire } = await import(`file://${built}/dist/node-redis.js`);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createCluster } = require('redis');

const ends = [];
const atEnd = (end) => ends.unshift(end);
let cluster;
before(async () => {
  cluster = await Cluster.start(atEnd);
});
after(async () => {
  for (const end of ends) await end();
});

async function asksTheServerOfEachKey(wire) {
  const owners = new Set();
  for (let number = 0; owners.size < 3 || number < 20; number += 1) {
    const owner = cluster.ports[cluster.nodes.indexOf(await cluster.owner(`key${number}`))];
    const reply = String(await wire.call(Buffer.from(`key${number}`), ['INFO', 'server'], 10_000));
    assert.equal(/tcp_port:(\d+)/.exec(reply)?.[1], String(owner), `key${number}`);
    owners.add(owner);
  }
}

test('over ioredis', async () => {
  const client = new Redis.Cluster([{ host: '127.0.0.1', port: cluster.ports[0] }]);
  client.on('error', () => undefined);
  atEnd(() => client.disconnect());
  await asksTheServerOfEachKey(ioredisWire(client));
});

test('over node-redis', async () => {
  const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${cluster.ports[0]}` }] });
  client.on('error', () => undefined);
  await client.connect();
  atEnd(() => client.destroy());
  await asksTheServerOfEachKey(nodeRedisWire(client));
});
