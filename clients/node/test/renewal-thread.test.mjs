// An event loop that is blocked for longer than a lease keeps its locks if a thread renews them.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { after, before, beforeEach, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockBadArgumentError, LockLostError, Locks } = await import(`file://${built}/dist/index.js`);
const require = createRequire(`${built}/`);
const { Cluster, Redis } = require('ioredis');
const { createClient, createClientPool, createCluster, createSentinel } = require('redis');

/** A thread on a busy machine may wake up late. */
const LEASE = 5000;
const LONG = 300_000;
/** Between two runs of a tick, this period's window hardly ever ends. */
const DAY = 86_400_000;

const workers = [];
const { unref } = Worker.prototype;
Worker.prototype.unref = function () {
  workers.push(this);
  unref.call(this);
};

const ends = [];
let port, plain;
before(async () => {
  port = await startServer((end) => ends.push(end), '--loadmodule', module);
  plain = new Redis({ port });
});
after(async () => {
  plain.disconnect();
  for (const end of ends) await end();
});
beforeEach(async () => {
  await plain.flushall();
  await plain.config('RESETSTAT');
});

/** Asks the server while the loop is blocked. */
const cli = (...words) => execFileSync('redis-cli', ['-p', port, ...words].map(String), { encoding: 'utf8' });
const renewals = () => Number(/cmdstat_lock\.extend:calls=(\d+)/.exec(cli('INFO', 'commandstats'))?.[1] ?? 0);
const state = (key) => /state\n(\w+)/.exec(cli('LOCK.INFO', key))?.[1];

const pause = new Int32Array(new SharedArrayBuffer(4));
/** Blocks the loop until that is so. */
function block(what, holds) {
  for (const end = Date.now() + 60_000; !holds(); ) {
    if (Date.now() >= end) throw new Error(`not within 60 s: ${what}`);
    Atomics.wait(pause, 0, 0, 20); // the thread and the server need the processors
  }
}
function blockForRenewals(count = 1) {
  const enough = renewals() + count;
  block('it is renewed', () => renewals() >= enough);
}
function blockForLongerThanLease() {
  const end = performance.now() + 1.2 * LEASE;
  block('the lease would have ended', () => performance.now() > end && cli('PING'));
}

const connections = async () => (await plain.client('LIST')).trim().split('\n').length;

const OPEN = {
  ioredis: () => new Redis({ port, keyPrefix: 'app:' }),
  'node-redis': () => createClient({ url: `redis://127.0.0.1:${port}` }).connect(),
};
const close = (client) => (client instanceof Redis ? client.disconnect() : client.destroy());

async function withLocks(library, work, options = { renewal: 'thread' }) {
  const client = await OPEN[library]();
  const locks = new Locks(client, options);
  try {
    await work(locks, client);
  } finally {
    locks.close();
    close(client);
  }
}

for (const library of Object.keys(OPEN)) {
  test(`${library}: a blocked loop keeps its locks`, () =>
    withLocks(library, async (locks) => {
      const key = library === 'ioredis' ? 'app:a' : 'a';
      await locks.lock('a', LEASE, { maxHold: LONG }).run((signal, held) => {
        blockForLongerThanLease();
        held.check();
        assert(held.left() > 0);
        assert(!signal.aborted);
        assert.match(cli('LOCK.INFO', key), new RegExp(`token\n${held.token}\n`));
      });
      assert.equal(state(key), 'free');
    }));

  test(`${library}: without the thread they are lost`, () =>
    withLocks(
      library,
      async (locks) => {
        const held = await locks.lock('a', LEASE, { maxHold: LONG }).acquire();
        block('it has expired', () => state(library === 'ioredis' ? 'app:a' : 'a') === 'expired');
        assert.throws(() => held.check(), LockLostError);
      },
      {},
    ));
}

test('nothing is acquired before the thread has started', async () => {
  const { on } = Worker.prototype;
  const late = [];
  Worker.prototype.on = function (name, hear) {
    return on.call(this, name, name === 'message' ? (...args) => late.push(() => hear.call(this, ...args)) : hear);
  };
  const client = new Redis({ port });
  const locks = new Locks(client, { renewal: 'thread' });
  try {
    const lock = (key) => locks.lock(key, LEASE, { maxHold: LONG });
    const cancelled = new AbortController();
    const given = lock('a').acquire({ signal: cancelled.signal });
    const held = lock('b').acquire();
    await until('the thread has started', () => late.length > 0);
    assert.deepEqual(await plain.keys('*'), []);
    cancelled.abort();
    await assert.rejects(given, { name: 'AbortError' });
    Worker.prototype.on = on;
    for (const hear of late) hear();
    assert(await (await held).release());
  } finally {
    Worker.prototype.on = on;
    locks.close();
    client.disconnect();
  }
});

test('several keys, shared and limited locks are renewed', () =>
  withLocks('node-redis', async (locks) => {
    const options = { maxHold: LONG };
    const holds = await Promise.all([
      locks.allOf(['a', 'b'], LEASE, options).acquire(),
      locks.shared('c', LEASE, options).acquire(),
      locks.limit('d', 2, LEASE, options).acquire(),
      locks.lock(Buffer.from([0, 255]), LEASE, options).acquire(),
    ]);
    blockForRenewals(4);
    for (const held of holds) {
      held.check();
      assert(await held.release());
    }
  }));

test('the thread renews without the module', async () => {
  const bare = await startServer((end) => ends.push(end));
  const client = new Redis({ port: bare });
  const locks = new Locks(client, { renewal: 'thread', warnWithoutModule: false });
  const held = await locks.lock('a', LEASE, { maxHold: LONG }).acquire();
  const ask = (...words) => execFileSync('redis-cli', ['-p', bare, ...words], { encoding: 'utf8' });
  const before = ask('GET', 'a');
  let last = before;
  let changes = 0;
  block('its end moves', () => {
    const value = ask('GET', 'a');
    if (value !== last) changes += 1;
    last = value;
    return changes >= 2;
  });
  held.check();
  assert(await held.release());
  locks.close();
  client.disconnect();
});

test('a loss while the loop is blocked is reported on the loop', () =>
  withLocks('ioredis', async (locks) => {
    const lost = [];
    const onLost = (one) => lost.push(one);
    const run = locks.lock('a', LEASE, { maxHold: LONG, onLost }).run(async (signal, held) => {
      blockForRenewals();
      cli('DEL', 'app:a');
      blockForRenewals();
      assert.throws(() => held.check(), /somebody else has taken it/);
      assert.deepEqual(lost, [held]);
      assert(signal.aborted);
    });
    await assert.rejects(run, LockLostError);
  }));

/** A hold that only a promise of its own signal waits for may be dropped: nothing else refers to either. */
const referenced = [];

test('a loss is reported even if nobody asks', () =>
  withLocks('ioredis', async (locks) => {
    const held = await locks.lock('a', LONG, { maxHold: LONG }).acquire();
    referenced.push(held);
    await held.extend(LEASE); // the thread renews it soon
    const aborted = once(held.signal, 'abort');
    cli('DEL', 'app:a');
    await aborted;
    assert.match(held.lost.message, /somebody else has taken it/);
  }));

test('a hung loop loses its lock after maxHold', () =>
  withLocks('ioredis', async (locks) => {
    const held = await locks.lock('a', LEASE, { maxHold: LEASE / 2 }).acquire();
    blockForRenewals();
    block('it has expired', () => state('app:a') === 'expired');
    const before = renewals();
    assert(before >= 1);
    assert.throws(() => held.check(), LockLostError);
    assert.equal(renewals(), before);
  }));

test('an extended lease is renewed with its own length', () =>
  withLocks('ioredis', async (locks) => {
    const held = await locks.lock('a', LONG, { maxHold: LONG }).acquire();
    await held.extend(LEASE);
    assert(held.left() <= LEASE);
    blockForRenewals();
    block('the loop knows', () => held.left() > LONG / 2);
    held.check();
  }));

test('a released lock is not renewed', () =>
  withLocks('ioredis', async (locks) => {
    const [kept, released] = [0, 1].map((n) => locks.lock(`${n}`, LEASE, { maxHold: LONG }));
    const held = await kept.acquire();
    const other = await released.acquire();
    blockForRenewals(2);
    assert(await other.release());
    blockForRenewals(2);
    held.check();
    assert.equal(Number(cli('EXISTS', 'app:1')), 0);
  }));

test('close ends the thread and its connection', () =>
  withLocks('ioredis', async (locks) => {
    const held = await locks.lock('a', LEASE, { maxHold: LONG }).acquire();
    const [before, workers] = [await connections(), process.getActiveResourcesInfo()];
    blockForRenewals();
    assert.equal(await connections(), before + 1);
    locks.close();
    await until('its connection has closed', async () => (await connections()) === before);
    await until('the loss is reported', () => held.lost !== undefined);
    assert(process.getActiveResourcesInfo().length <= workers.length);
  }));

test('the loop takes over when the thread dies', () =>
  withLocks('ioredis', async (locks) => {
    const warned = once(process, 'warning');
    const held = await locks.lock('a', LEASE, { maxHold: LONG }).acquire();
    blockForRenewals();
    await workers.at(-1).terminate();
    const [warning] = await warned;
    assert.equal(warning.code, 'SERVERLOCK_RENEWAL');
    const enough = renewals() + 2;
    await until('the loop renews it', () => renewals() >= enough);
    held.check();
    const next = await locks.lock('b', LEASE, { maxHold: LONG }).acquire();
    const more = renewals() + 4;
    await until('the loop renews both', () => renewals() >= more);
    next.check();
  }));

test('the thread connects again', () =>
  withLocks('ioredis', async (locks, client) => {
    const held = await locks.lock('a', LEASE, { maxHold: LONG }).acquire();
    blockForRenewals();
    cli('CLIENT', 'KILL', 'TYPE', 'normal');
    blockForLongerThanLease();
    held.check();
    await until('the loop has its connection', () => client.status === 'ready');
  }));

test('leaders are renewed on the loop', () =>
  withLocks('ioredis', async (locks) => {
    const deposed = new Promise((resolve) => {
      const leader = locks.leader('a', LEASE, { onElected: () => elected(), onLost: resolve });
      const elected = () => setImmediate(() => block('it has expired', () => state('app:a') === 'expired'));
      leader.start();
    });
    await deposed;
  }));

test('a tick that ran is kept after the thread has renewed its lock', () =>
  withLocks('node-redis', async (locks) => {
    const run = () => locks.once('a', DAY, { lease: LEASE, maxHold: LONG }).run(() => blockForRenewals(2));
    assert.equal((await run()).outcome, 'ran');
    assert.equal((await run()).outcome, 'elsewhere');
  }));

test('a thread does not keep the process alive', async () => {
  const text = `
    const { createRequire } = await import('node:module');
    const { Locks } = await import('file://${built}/dist/index.js');
    const { Redis } = createRequire('${built}/')('ioredis');
    const redis = new Redis({ port: ${port} });
    const held = await new Locks(redis, { renewal: 'thread' }).lock('a', ${LEASE}, { maxHold: ${LONG} }).acquire();
    await new Promise((resolve) => setTimeout(resolve, ${LEASE / 2}));
    held.check();
    redis.disconnect();
    console.log('end');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', text], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.resume();
  const [code] = await once(child, 'exit');
  assert.equal(code, 0);
});

test('arguments are checked', async () => {
  const clients = [];
  const ioredis = (options) => {
    const client = new Redis({ port, lazyConnect: true, ...options });
    clients.push(client);
    return client;
  };
  const managers = [];
  const renewedInThread = (client) => {
    managers.push(new Locks(client, { renewal: 'thread' }));
    return managers.at(-1);
  };
  const locks = renewedInThread(ioredis());
  for (const wrong of [
    () => locks.lock('a', 5000),
    () => locks.once('a', 60_000),
    () => locks.session().lock('a', 5000),
  ])
    assert.throws(
      wrong,
      (error) => error instanceof LockBadArgumentError && /'a': maxHold is missing/.test(error.message),
    );
  locks.once('a', 60_000, { rerun: false });
  locks.leader('a', 5000);
  const refused = [
    [ioredis({ tls: { checkServerIdentity: () => undefined } }), /option tls\.checkServerIdentity is a function/],
    [ioredis({ natMap: () => null }), /option natMap is a function/],
    [new Cluster([{ port }], { lazyConnect: true }), /a cluster/],
    [createCluster({ rootNodes: [{ socket: { port } }] }), /a cluster/],
    [createClientPool({ socket: { port } }), /a pool/],
    [createSentinel({ name: 'm', sentinelRootNodes: [{ port }] }), /sentinel/],
    [createClient({ socket: { port, lookup: () => undefined } }), /option socket\.lookup is a function/],
    [
      createClient({ credentialsProvider: { type: 'async-credentials-provider', credentials: async () => ({}) } }),
      /option credentialsProvider/,
    ],
  ];
  for (const [client, text] of refused)
    assert.throws(
      () => new Locks(client, { renewal: 'thread' }),
      (error) => error instanceof LockBadArgumentError && text.test(error.message),
      String(text),
    );
  assert.throws(() => new Locks(ioredis(), { renewal: 'process' }), /renewal is process/);
  for (const more of [
    ioredis({
      retryStrategy: () => 1,
      reconnectOnError: () => false,
      password: 'x',
      tls: { ca: 'x', servername: 'y' },
    }),
    ioredis({ sentinels: [{ host: '127.0.0.1', port }], name: 'm', sentinelRetryStrategy: () => 1 }),
    createClient({
      username: 'u',
      password: 'p',
      socket: { port, tls: true, ca: Buffer.from('x'), reconnectStrategy: () => 1 },
    }),
  ])
    renewedInThread(more);
  for (const manager of managers) manager.close();
  for (const client of clients) client.disconnect();
});
