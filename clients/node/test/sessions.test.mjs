// The session locks of a caller share a connection, and no failed attempt ends it.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Cluster, module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockBadArgumentError, LockDeadlockError, LockLostError, LockMisuseError, Locks, Session } = await import(
  `file://${built}/dist/index.js`
);
const require = createRequire(`${built}/`);
const { Cluster: IoredisCluster, Redis } = require('ioredis');
const { createClient, createCluster } = require('redis');

const MINUTE = 60_000;
const WAITS = { wait: MINUTE };
const OWN = { session: true };

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

async function info(key, field) {
  const reply = await plain.call('LOCK.INFO', key);
  return reply[reply.indexOf(field) + 1];
}
const sessionOf = (key) => info(key, 'session');
const waits = (key, n) => until(`${n} wait`, async () => (await info(key, 'waiters')) === n);
const isOpen = async (id) => (await plain.client('LIST')).includes(`id=${id} `);

const CLIENTS = {
  ioredis() {
    const client = new Redis({ port });
    return [client, () => client.disconnect()];
  },
  async 'node-redis'() {
    const client = await createClient({ socket: { port } })
      .on('error', () => undefined)
      .connect();
    return [client, () => client.destroy()];
  },
};

for (const [library, connect] of Object.entries(CLIENTS)) {
  const testIn = (name, work) =>
    test(`${library}: ${name}`, async () => {
      await plain.flushall();
      const [client, end] = await connect();
      const locks = new Locks(client);
      try {
        await work(locks, client);
      } finally {
        locks.close();
        end();
      }
    });

  testIn('the locks of a session share a connection that closes with the last', async (locks) => {
    const session = locks.session();
    assert(session instanceof Session);
    const a = await session.lock('a', MINUTE).acquire();
    const id = await sessionOf('a');
    assert(id > 0);
    const others = [
      session.shared('b', MINUTE),
      session.limit('c', 2, MINUTE, WAITS),
      session.allOf(['d', 'e'], MINUTE, { ...WAITS, session: true }),
    ];
    const held = [];
    for (const lock of others) held.push(await lock.acquire());
    for (const key of 'bcde') assert.equal(await sessionOf(key), id, key);
    const alone = await locks.lock('f', MINUTE, OWN).acquire();
    assert.notEqual(await sessionOf('f'), id, 'without a scope, nobody knows the caller');
    assert.equal(await a.release(), true);
    for (const one of held) {
      assert(await isOpen(id));
      assert.equal(await one.release(), true);
    }
    await until('its connection is closed', async () => !(await isOpen(id)));
    assert.equal(locks._engine.census().sessions, 1);
    assert.equal(await alone.release(), true);
    assert.equal(locks._engine.census().sessions, 0);
    for (const wrong of [{ session: false }, { session: 'yes' }, { waits: 1 }, null])
      assert.throws(() => session.lock('a', MINUTE, wrong), LockBadArgumentError);
  });

  testIn('session locks in nested scopes share a connection, but not with those of other branches', async (locks) => {
    const lock = (key) => locks.lock(key, MINUTE, { ...OWN, ...WAITS });
    await lock('a').run(async () => {
      const id = await sessionOf('a');
      await lock('b').run(async () => assert.equal(await sessionOf('b'), id));
      const held = await lock('b').acquire();
      assert.equal(await sessionOf('b'), id);
      // Another branch may hold b, so waiting for it does not close a cycle.
      const waiting = lock('b').acquire();
      await waits('b', 1);
      assert.equal(await held.release(), true);
      const next = await waiting;
      assert.notEqual(await sessionOf('b'), id);
      await lock('c').run(async () => assert.equal(await sessionOf('c'), id));
      assert.equal(await next.release(), true);
    });
    await until('no session is left', () => locks._engine.census().sessions === 0);
  });

  testIn('whatever outlives a hold does not share its connection', async (locks) => {
    const lock = (key) => locks.lock(key, MINUTE, OWN);
    let go;
    const gone = new Promise((resolve) => (go = resolve));
    let later;
    const kept = await lock('a').run(async () => {
      const held = await lock('b').acquire();
      later = gone.then(() => lock('c').acquire());
      return held;
    });
    go();
    const held = await later;
    assert.notEqual(await sessionOf('c'), await sessionOf('b'));
    assert.equal(await held.release(), true);
    assert.equal(await kept.release(), true);
    const run = lock('d').run(async (_, lost) => {
      const id = await sessionOf('d');
      await plain.del('d');
      await assert.rejects(lost.verify(), LockLostError);
      const next = await lock('e').acquire();
      assert.notEqual(await sessionOf('e'), id);
      assert.equal(await next.release(), true);
    });
    await assert.rejects(run, LockLostError);
  });

  testIn('a session that waits for itself is a deadlock', async (locks) => {
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    await assert.rejects(session.lock('a', MINUTE, WAITS).acquire(), LockDeadlockError);
    held.check();
    assert.equal(await held.release(), true);
  });

  testIn('callers in scopes that lock in opposite order get a deadlock', async (locks) => {
    const lock = (key) => locks.lock(key, MINUTE, { ...OWN, ...WAITS });
    let enter;
    const entered = new Promise((resolve) => (enter = resolve));
    const one = lock('a').run(async () => {
      await entered;
      await lock('b').run(() => undefined);
    });
    await lock('b').run(async () => {
      enter();
      await waits('b', 1);
      await assert.rejects(lock('a').run(assert.fail), LockDeadlockError);
    });
    await one;
  });

  testIn('an attempt that meets another one of its session uses another connection', async (locks) => {
    const theirs = await locks.lock('b', MINUTE).acquire();
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    const waiting = session.lock('b', MINUTE, WAITS).acquire();
    await waits('b', 1);
    const other = await session.lock('c', MINUTE).acquire();
    assert.notEqual(await sessionOf('c'), await sessionOf('a'));
    assert.equal(await theirs.release(), true);
    const got = await waiting;
    assert.equal(await sessionOf('b'), await sessionOf('a'));
    for (const one of [got, other, held]) assert.equal(await one.release(), true);
  });

  testIn('a cancelled wait keeps the other locks of its session', async (locks) => {
    const theirs = await locks.lock('b', MINUTE).acquire();
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    const [id, wanted] = [await sessionOf('a'), session.lock('b', MINUTE, WAITS)];
    for (let turn = 0; turn < 40; turn += 1) {
      const given = new AbortController();
      const waiting = wanted.acquire({ signal: given.signal });
      const cancel = () => given.abort();
      if (turn < 10) for (let steps = 0; steps < turn; steps += 1) await undefined;
      else await new Promise((resolve) => setTimeout(resolve, turn % 5));
      cancel();
      await assert.rejects(waiting, { name: 'AbortError' });
    }
    await waits('b', 0);
    held.check();
    assert.equal(await sessionOf('a'), id);
    assert.equal(await theirs.release(), true);
    await until('the session is free for the next attempt', async () => {
      const got = await wanted.acquire();
      const isShared = (await sessionOf('b')) === id;
      assert.equal(await got.release(), true);
      return isShared;
    });
    assert.equal(await held.release(), true);
    await until('no session is left', () => locks._engine.census().sessions === 0);
    assert(Object.values(locks._engine.census()).every((count) => count === 0));
  });

  testIn('an attempt that meets a cancelled wait of its session uses another connection', async (locks, client) => {
    const theirs = await locks.lock('b', MINUTE).acquire();
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    const given = new AbortController();
    const waiting = session.lock('b', MINUTE, WAITS).acquire({ signal: given.signal });
    await waits('b', 1);
    const method = library === 'ioredis' ? 'call' : 'sendCommand';
    const send = client[method].bind(client);
    let go;
    const gone = new Promise((resolve) => (go = resolve));
    client[method] = async (...words) => {
      if (words.flat()[0] === 'LOCK.CANCEL') await gone;
      return send(...words);
    };
    given.abort();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const other = await session.lock('c', MINUTE).acquire();
    assert.notEqual(await sessionOf('c'), await sessionOf('a'));
    go();
    await assert.rejects(waiting, { name: 'AbortError' });
    await waits('b', 0);
    for (const one of [other, held, theirs]) assert.equal(await one.release(), true);
  });

  testIn('closing the manager loses only the sessions that wait', async (locks) => {
    const theirs = await locks.lock('b', MINUTE).acquire();
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    const idle = await locks.lock('c', MINUTE, OWN).acquire();
    const waiting = assert.rejects(session.lock('b', MINUTE, WAITS).acquire(), LockMisuseError);
    await waits('b', 1);
    locks.close();
    assert(held.lost instanceof LockLostError, 'lost at once');
    await waiting;
    idle.check();
    assert.equal(await idle.release(), true);
    await waits('b', 0);
    assert.equal(await theirs.release(), true);
  });

  testIn('a dropped hold ends with the last one of its session', async (locks) => {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc');
    const session = locks.session();
    await (async () => void (await session.lock('a', MINUTE).acquire()))();
    const held = await session.lock('b', MINUTE).acquire();
    const id = await sessionOf('a');
    for (let turn = 0; turn < 10; turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      gc();
    }
    held.check();
    assert.equal(await sessionOf('a'), id);
    assert.equal(await sessionOf('b'), id);
    assert.equal(await held.release(), true);
    await until('its connection is closed', async () => !(await isOpen(id)));
  });

  testIn('an error from the EXTEND after a long wait does not end the session', async (locks, client) => {
    const theirs = await locks.lock('b', MINUTE).acquire();
    const session = locks.session();
    const held = await session.lock('a', MINUTE).acquire();
    const waiting = session.lock('b', 900, WAITS).acquire();
    await waits('b', 1);
    await new Promise((resolve) => setTimeout(resolve, 400)); // more than a third of the lease
    const method = library === 'ioredis' ? 'call' : 'sendCommand';
    const send = client[method].bind(client);
    let failed = 0;
    client[method] = (...words) => {
      if (words.flat()[0] !== 'LOCK.EXTEND' || failed > 0) return send(...words);
      failed += 1;
      return Promise.reject(new Error('READONLY not now'));
    };
    assert.equal(await theirs.release(), true);
    const got = await waiting;
    assert.equal(failed, 1);
    held.check();
    assert.equal(await sessionOf('b'), await sessionOf('a'));
    assert.equal(await got.release(), true);
    assert.equal(await held.release(), true);
  });
}

const CLUSTERS = {
  ioredis(at) {
    const client = new IoredisCluster([{ host: '127.0.0.1', port: at }]);
    return [client, () => client.disconnect()];
  },
  async 'node-redis'(at) {
    const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${at}` }] });
    await client.on('error', () => undefined).connect();
    return [client, () => client.destroy()];
  },
};

test('in a cluster, a session has a connection to each server, and goes where a key has moved', async () => {
  const cluster = await Cluster.start((end) => ends.push(end));
  const session = async (key) => {
    const reply = await cluster.call('LOCK.INFO', key);
    return reply[reply.indexOf('session') + 1];
  };
  const first = await cluster.owner('a');
  const keys = Array.from({ length: 50 }, (_, number) => `k${number}`);
  const owners = await Promise.all(keys.map((key) => cluster.owner(key)));
  const near = keys.filter((_, at) => owners[at] === first);
  for (const [number, [library, connect]] of Object.entries(CLUSTERS).entries()) {
    const [client, end] = await connect(cluster.ports[0]);
    const locks = new Locks(client);
    const own = locks.session();
    const held = [await own.lock('a', MINUTE).acquire()];
    const id = await session('a');
    const key = near[number];
    held.push(await own.lock(key, MINUTE).acquire());
    assert.equal(await session(key), id, library);
    assert.equal(await held.pop().release(), true);
    await cluster.move(key);
    held.push(await own.lock(key, MINUTE, WAITS).acquire());
    assert.notEqual(await cluster.owner(key), first);
    held.push(await own.lock(near[2], MINUTE).acquire());
    assert.equal(await session(near[2]), id, `${library}: it is still that of its server`);
    held[0].check();
    for (const one of held) assert.equal(await one.release(), true);
    assert.equal(locks._engine.census().sessions, 0);
    locks.close();
    end();
  }
});
