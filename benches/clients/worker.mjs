/** One process of the client benchmark, in Node: worker.mjs CONTENDER PORT. run.py describes its input. */

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const LEASE = 30_000;
const KEY = `bench:${process.pid}`;
const built = process.env.SERVERLOCK;
const require = createRequire(`${built}/`);
const { Locks } = await import(pathToFileURL(`${built}/dist/index.js`));

const clients = {
  'node-redis': async (port) => {
    const client = await require('redis').createClient({ url: `redis://127.0.0.1:${port}` }).connect();
    return [client, (...words) => client.sendCommand(words)];
  },
  ioredis: async (port) => {
    const client = new (require('ioredis').Redis)(port);
    return [client, (...words) => client.call(...words)];
  },
};

/** Each returns, for a key and a wait, a function that acquires and one that releases. */
const kinds = {
  package: ([client]) => {
    const locks = new Locks(client);
    return (key, wait) => {
      const lock = locks.lock(key, LEASE, { wait });
      return [() => lock.acquire(), (held) => held.release()];
    };
  },
  raw: ([, call]) => (key, wait) => {
    const waits = wait ? ['WAIT', String(wait)] : [];
    return [() => call('LOCK.ACQUIRE', key, 'PX', String(LEASE), ...waits), (token) => call('LOCK.RELEASE', key, String(token))];
  },
  redlock: ([client]) => {
    const Redlock = require('redlock');
    return (key, wait) => {
      const redlock = new Redlock([client], { retryCount: wait ? -1 : 0, retryDelay: 100, retryJitter: 50 });
      return [() => redlock.lock(key, LEASE), (lock) => lock.unlock()];
    };
  },
};

const [name, port] = process.argv.slice(2);
const [library, kind] = name.split(' ');
const connected = await clients[library](Number(port));
const lock = kinds[kind](connected);

async function pairs([acquire, release], count) {
  const began = performance.now();
  for (let turn = 0; turn < count; turn += 1) await release(await acquire());
  return (performance.now() - began) / 1000;
}

async function hot([acquire, release], seconds) {
  const waits = [];
  const end = performance.now() + seconds * 1000;
  for (let asked = performance.now(); asked < end; asked = performance.now()) {
    const token = await acquire();
    waits.push(Math.round((performance.now() - asked) * 1000));
    await release(token);
  }
  return waits;
}

await pairs(lock(KEY, 0), 3); // connects, loads scripts
console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [order, ...words] = line.split(' ');
  const before = process.cpuUsage();
  const cpu = () => (({ user, system }) => (user + system) / 1e6)(process.cpuUsage(before));
  let answer = null;
  if (order === 'pair') answer = [await pairs(lock(KEY, 0), Number(words[0])), cpu()];
  else if (order === 'hot') answer = [await hot(lock(words[0], 60_000), Number(words[1])), cpu()];
  else if (order === 'crowd') {
    const client = () => hot(lock(words[0], 60_000), Number(words[1]));
    answer = [await Promise.all(Array.from({ length: Number(words[2]) }, client)), cpu()];
  } else if (order === 'waits') for (let n = 0; n < Number(words[0]); n += 1) lock(`waits:${n}`, 600_000)[0]().catch(() => undefined);
  else answer = Math.round(process.memoryUsage.rss() / 1024);
  console.log(JSON.stringify(answer));
}
process.exit();
