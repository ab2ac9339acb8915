// The application's connection swallows everything, and the library does not notice: its options are the defaults.
// Held locks are renewed and released over the manager's own connection.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { Relay } from './relay.mjs';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { Locks } = await import(`file://${built}/dist/index.js`);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createClient } = require('redis');

const OPEN = {
  ioredis: (port) => new Redis({ port }),
  'node-redis': (port) => createClient({ url: `redis://127.0.0.1:${port}` }).connect(),
};

const cleanups = [];
let port, plain;
before(async () => {
  port = await startServer((end) => cleanups.push(end), '--loadmodule', module);
  plain = new Redis({ port });
});
after(async () => {
  plain.disconnect();
  for (const end of cleanups.reverse()) await end();
});

for (const [library, open] of Object.entries(OPEN)) {
  test(`${library}: locks are renewed, and released`, async () => {
    const relay = await Relay.to(port, (end) => cleanups.push(end));
    const client = await open(relay.port);
    client.on('error', () => undefined);
    cleanups.push(() => (library === 'ioredis' ? client.disconnect() : client.destroy()));
    const locks = new Locks(client, { timeout: 2000 });
    const holds = await Promise.all(
      Array.from({ length: 30 }, (_, number) => locks.lock(`${library} ${number}`, 15_000).acquire()),
    );
    const tokens = holds.map((held, number) => [`${library} ${number}`, held.token]);
    const connections = async () => (await plain.call('CLIENT', 'LIST')).trim().split('\n').length;
    const before = await connections();
    assert.equal(relay.halfOpen(), 1);
    const chatter = setInterval(() => void client.ping().catch(() => undefined), 50); // as applications do
    const left = (key, token) => plain.call('LOCK.CHECK', key, token);
    await Promise.all(
      tokens.map(async ([key, token]) => {
        await until('part of the lease has passed', async () => (await left(key, token)) < 11_000);
        await until('it is renewed', async () => (await left(key, token)) > 12_500);
      }),
    );
    for (const held of holds) held.check();
    const more = (await connections()) - before;
    assert(more >= 1 && more <= 8, `${more} connections of its own`);
    assert.deepEqual(
      await Promise.all(holds.map((held) => held.release())),
      holds.map(() => true),
    );
    for (const [key] of tokens) await until('it is free', async () => (await plain.exists(key)) === 0);
    clearInterval(chatter);
    locks.close();
  });

  test(`${library}: the application's connection is used again once it answers`, async () => {
    const relay = await Relay.to(port, (end) => cleanups.push(end));
    const client = await open(relay.port);
    client.on('error', () => undefined);
    cleanups.push(() => (library === 'ioredis' ? client.disconnect() : client.destroy()));
    const locks = new Locks(client, { timeout: 2000 });
    const held = await locks.lock('again', 600_000).acquire();
    const answers = [];
    relay.answer = (data) => {
      if (!data.includes('LOCK.RELEASE')) return undefined;
      answers.push(':1\r\n'); // sent late
      return '';
    };
    assert.equal(await held.release(), true);
    relay.answer = () => undefined;
    await until('it is released over another', async () => (await plain.exists('again')) === 0);
    assert.equal(answers.length, 1);
    relay.say(answers[0]);
    const before = relay.accepted;
    await until('its late reply was read', async () => (await client.ping()) === 'PONG');
    const next = await locks.lock('again', 600_000).acquire();
    assert.equal(await next.release(), true);
    assert.equal(relay.accepted, before);
    locks.close();
  });
}
