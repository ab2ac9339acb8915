/** One process of the comparison, in Node: worker.mjs CONTENDER PORT. run.py describes its input. */

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const LEASE = Number(process.env.LEASE_MS ?? 30_000);
const WAIT = 120_000;
const built = process.env.SERVERLOCK;
const require = createRequire(`${built}/`);

/** Each returns the locks of one process: [acquire, release, token]. */
const contenders = {
  'ioredis package': packageOver,
  'ioredis package, script': packageOver,
  // The least that a lock in Redis can cost a client: two commands, for a free lock. It is not safe, because DEL
  // deletes any holder's lock.
  'ioredis SET and DEL': async (port) => {
    const client = connect(port);
    const acquire = async (key) => {
      if ((await client.set(key, randomUUID(), 'PX', LEASE, 'NX')) !== 'OK') throw new Error('not granted');
    };
    return { lock: (key) => [() => acquire(key), () => client.del(key), () => 0] };
  },
  'node-redlock': async (port) => {
    const Redlock = require('redlock-5').default;
    // The README's settings, but it does not give up.
    const redlock = new Redlock([connect(port)], { retryCount: -1, retryDelay: 200, retryJitter: 200 });
    return { lock: (key) => [() => redlock.acquire([key], LEASE), (held) => held.release(), () => 0] };
  },
};

function connect(port) {
  return new (require('ioredis').Redis)({ port, retryStrategy: () => 50, maxRetriesPerRequest: null });
}

async function packageOver(port) {
  const { Locks } = await import(pathToFileURL(`${built}/dist/index.js`));
  const locks = new Locks(connect(port));
  const described = (lock) => [() => lock.acquire(), (held) => held.release(), (held) => held.token];
  return {
    lock: (key) => described(locks.lock(key, LEASE, { wait: WAIT })),
    slots: (key, permits) => described(locks.limit(key, permits, LEASE, { wait: WAIT })),
  };
}

/** The time of acquire and release. */
async function pairs([acquire, release], end, measured) {
  for (let asked = performance.now(); asked < end; ) {
    await release(await acquire());
    const now = performance.now();
    measured.waits.push(now - asked);
    measured.inTime += 1;
    asked = now;
  }
}

/** The time until each grant. */
async function grants([acquire, release], end, measured) {
  for (let asked = performance.now(); asked < end; asked = performance.now()) {
    const held = await acquire();
    const now = performance.now();
    measured.waits.push(now - asked);
    if (now < end) measured.inTime += 1;
    await release(held);
  }
}

/** Goes on after errors, and notes the longest time without a grant. */
function stubborn(gaps) {
  return async ([acquire, release], end, measured) => {
    for (let asked = performance.now(); asked < end; asked = performance.now()) {
      try {
        const held = await acquire();
        const now = performance.now();
        gaps.longest = Math.max(gaps.longest, now - gaps.last);
        gaps.last = now;
        measured.waits.push(now - asked);
        if (now < end) measured.inTime += 1;
        await release(held);
      } catch {
        measured.errors += 1;
        await sleep(10);
      }
    }
  };
}

/** Adds to the counter that the lock guards, and counts the accepted writes. */
function increments(port, isFenced) {
  return async ([acquire, release, token], end, measured) => {
    const socket = net.connect(port, '127.0.0.1');
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const ask = async (...words) => {
      socket.write(`${words.join(' ')}\n`);
      return (await lines.next()).value;
    };
    while (performance.now() < end) {
      try {
        const held = await acquire();
        const value = Number(await ask('get', process.pid));
        await sleep(5);
        if ((await ask('put', value + 1, isFenced ? token(held) : 0)) === 'ok') measured.inTime += 1;
        await release(held);
      } catch {
        measured.errors += 1;
        await sleep(10);
      }
    }
    socket.end();
  };
}

async function together(clients, seconds, locks, body) {
  const own = Array.from({ length: clients }, (_, n) => [locks(n), { waits: [], inTime: 0, errors: 0 }]);
  const end = performance.now() + seconds * 1000;
  await Promise.all(own.map(([lock, measured]) => body(lock, end, measured)));
  const waits = {};
  const counts = [];
  let errors = 0;
  for (const [, measured] of own) {
    counts.push(measured.inTime);
    errors += measured.errors;
    for (const wait of measured.waits) {
      const bucket = Math.round(Math.log(Math.max(1, wait * 1e6)) / Math.log(1.02));
      waits[bucket] = (waits[bucket] ?? 0) + 1;
    }
  }
  return { counts, waits, errors };
}

async function answer(contender, [order, key, clients, seconds, ...rest]) {
  const same = () => contender.lock(key);
  const run = (locks, body) => together(Number(clients), Number(seconds), locks, body);
  switch (order) {
    case 'free':
      return run((n) => contender.lock(`${key}:${process.pid}:${n}`), pairs);
    case 'hot':
      return run(same, grants);
    case 'slots':
      return run(() => contender.slots(key, Number(rest[0])), grants);
    case 'outage': {
      const gaps = { last: performance.now(), longest: 0 };
      return { ...(await run(same, stubborn(gaps))), gap_ms: gaps.longest };
    }
    case 'count':
      return run(same, increments(Number(rest[0]), rest[1] === 'fenced'));
    default:
      await same()[0]();
      return {};
  }
}

const [name, port] = process.argv.slice(2);
const contender = await contenders[name](Number(port));
console.log('{}');
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(contender, line.split(' '))));
}
process.exit();
