// Plays the orders of clients/suite with this package: `driver.mjs node-redis` or `driver.mjs ioredis`.
// SERVERLOCK is the folder in which the package is built, beside the node_modules with the client libraries.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const folder = process.env.SERVERLOCK;
const { Locks, ...lock } = await import(pathToFileURL(`${folder}/dist/index.js`).href);
const require = createRequire(`${folder}/`);
const library = process.argv[2];

const KINDS = [
  [lock.LockTimeout, 'timeout'],
  [lock.LockRefused, 'refused'],
  [lock.LockLost, 'lost'],
  [lock.LockDeadlock, 'deadlock'],
  [lock.LockUnavailable, 'unavailable'],
  [lock.LockDenied, 'denied'],
  [lock.LockNoServer, 'no_server'],
  [lock.LockBadArgument, 'argument'],
  [lock.LockMisuse, 'misuse'],
];

class Work extends Error {}
class Cannot extends Error {}

const clients = {}, managers = {}, holds = {}, objects = {}, bodies = {}, leaders = {}, pending = {};
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function answerError(n, error) {
  const known = KINDS.find(([type]) => error instanceof type);
  const [kind, text] = known
    ? [known[1], error.message]
    : error instanceof Work ? ['work', error.message]
    : error instanceof Cannot ? ['cannot', error.message]
    : error?.name === 'AbortError' ? ['cancelled', '']
    : ['unknown', error?.stack ?? String(error)];
  say({ n, error: { kind, text } });
}

async function clientOf(at, protocol) {
  const auth = { ...(at.user && { username: at.user }), ...(at.password && { password: at.password }) };
  const ca = at.tls && readFileSync(at.tls.ca);
  if (library === 'ioredis') {
    const { Redis, Cluster } = require('ioredis');
    const more = { ...auth, protocol, ...(ca && { tls: { ca } }) };
    const client =
      at.kind === 'cluster' ? new Cluster(at.nodes.map(([host, port]) => ({ host, port })), { redisOptions: more })
      : at.kind === 'sentinel'
        ? new Redis({ sentinels: at.sentinels.map(([host, port]) => ({ host, port })), name: at.master, ...more })
      : at.kind === 'unix' ? new Redis({ path: at.path, ...more })
      : new Redis({ host: at.host, port: at.port, ...more });
    client.on('error', () => undefined);
    return client;
  }
  const { createClient, createCluster, createSentinel } = require('redis');
  const more = { ...auth, RESP: protocol };
  const client =
    at.kind === 'cluster'
      ? createCluster({ rootNodes: at.nodes.map(([host, port]) => ({ socket: { host, port } })), defaults: more, RESP: protocol })
    : at.kind === 'sentinel'
      ? createSentinel({ name: at.master, sentinelRootNodes: at.sentinels.map(([host, port]) => ({ host, port })), nodeClientOptions: more })
    : at.kind === 'unix' ? createClient({ socket: { path: at.path }, ...more })
    : createClient({ socket: { host: at.host, port: at.port, ...(ca && { tls: true, ca }) }, ...more });
  client.on('error', () => undefined);
  const connecting = client.connect().catch(() => undefined);
  await Promise.race([connecting, new Promise((resolve) => setTimeout(resolve, 1000))]);
  return client;
}

const keyOf = (key) => (key !== null && typeof key === 'object' ? Buffer.from(key.hex, 'hex') : key);

function lockOf(order, name) {
  const locks = managers[order.manager];
  const options = { onLost: (held) => say({ event: 'lost', ...name, text: String(held.lost?.message) }) };
  for (const field of ['session', 'owner', 'details', 'replicas', 'fsync']) if (field in order) options[field] = order[field];
  const durations = { wait_ms: 'wait', at_least_ms: 'atLeast', max_hold_ms: 'maxHold', replicas_within_ms: 'replicasWithin' };
  for (const [field, option] of Object.entries(durations)) if (field in order) options[option] = order[field];
  if ('keys' in order) return locks.allOf(order.keys.map(keyOf), order.lease_ms, options);
  const key = keyOf(order.key);
  if (order.shared) return locks.shared(key, order.lease_ms, options);
  if ('limit' in order) return locks.limit(key, order.limit, order.lease_ms, options);
  if (order.recover) return locks.recover(key, order.lease_ms, options);
  return locks.lock(key, order.lease_ms, options);
}

const theLock = (order, name) => ('object' in order ? objects[order.object] : lockOf(order, name));
const heldOf = (order) => ('hold' in order ? holds[order.hold] : bodies[order.scope].held);

function shown(held) {
  const before = held.predecessor;
  return { token: held.token, predecessor: before && { overdue_ms: before.overdue, token: before.token, owner: before.owner } };
}

const acts = {
  async open(order) {
    const client = (clients[order.manager] = await clientOf(order.at, order.protocol ?? 2));
    const hook = (name, field) => (key, ms) => say({ event: 'hook', manager: order.manager, name, key, [field]: ms });
    managers[order.manager] = new Locks(client, {
      warn: (text) => console.error(text),
      ...('timeout_ms' in order && { timeout: order.timeout_ms }),
      ...('portable' in order && { portable: order.portable }),
      ...(order.hooks && {
        hooks: {
          granted: hook('granted', 'waited_ms'),
          refused: hook('refused', 'waited_ms'),
          lost: hook('lost', 'held_ms'),
          released: hook('released', 'held_ms'),
        },
      }),
    });
  },
  close: (order) => managers[order.manager].close(),
  async raw(order) {
    const client = clients[order.manager];
    const reply = library === 'ioredis' ? client.call(...order.args) : client.sendCommand(order.args);
    return { reply: await reply };
  },
  object(order) {
    objects[order.object] = lockOf(order, { object: order.object });
  },
  async acquire(order) {
    const { signal } = (pending[order.n] = new AbortController());
    return shown((holds[order.hold] = await theLock(order, { hold: order.hold }).acquire({ signal })));
  },
  cancel: (order) => pending[order.of]?.abort(),
  async scope(order) {
    const { signal: gaveUp } = (pending[order.n] = new AbortController());
    const body = (bodies[order.scope] = { lock: theLock(order, { scope: order.scope }), held: undefined });
    await body.lock.run(async (signal, held) => {
      body.held = held;
      say({ event: 'entered', scope: order.scope, token: held.token });
      for (;;) {
        const work = await new Promise((resolve, reject) => {
          body.tell = resolve;
          const stop = () => {
            say({ event: 'stopped', scope: order.scope });
            reject(signal.reason);
          };
          if (signal.aborted) stop();
          else signal.addEventListener('abort', stop, { once: true });
        });
        if (work === 'leave') return;
        if (work === 'fail') throw new Work('the work failed');
        await work();
      }
    }, { signal: gaveUp });
  },
  leave: (order) => bodies[order.scope].tell('leave'),
  fail: (order) => bodies[order.scope].tell('fail'),
  again: (order) =>
    new Promise((resolve, reject) => {
      const body = bodies[order.scope];
      body.tell(() => body.lock.acquire().then((held) => resolve(shown(held)), reject));
    }),
  check(order) {
    heldOf(order).check();
    return { left_ms: heldOf(order).left() };
  },
  left: (order) => ({ left_ms: heldOf(order).left() }),
  verify: async (order) => ({ left_ms: await heldOf(order).verify() }),
  extend: (order) => heldOf(order).extend(order.lease_ms),
  release: async (order) => ({ held: await heldOf(order).release() }),
  fenced: async (order) => ({ reply: await heldOf(order).fenced(...order.args) }),
  async drop(order) {
    delete holds[order.hold];
    for (let turn = 0; turn < 10; turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      globalThis.gc?.();
    }
  },
  lead(order) {
    leaders[order.leader] = managers[order.manager]
      .leader(order.key, order.lease_ms, {
        ...(order.owner && { owner: order.owner }),
        onElected: (token) => say({ event: 'elected', leader: order.leader, token }),
        onLost: (token) => say({ event: 'deposed', leader: order.leader, token }),
      })
      .start();
  },
  resign: (order) => leaders[order.leader].resign(),
  stop: (order) => leaders[order.leader].stop(),
  observe(order) {
    const observer = managers[order.manager].leader(order.key, order.lease_ms);
    void (async () => {
      for await (const { token, owner } of observer.observe()) say({ event: 'leader', observer: order.observer, token, owner });
    })();
  },
};

const version = require(`${library === 'ioredis' ? 'ioredis' : 'redis'}/package.json`).version;
const can = ['sentinel', 'cluster', 'tls', 'unix', 'cancel', 'stop', 'background', 'session', 'leader', ...(globalThis.gc ? ['drop'] : [])];
say({ event: 'ready', language: 'node', client: library, version, can });
createInterface({ input: process.stdin })
  .on('line', async (line) => {
    const order = JSON.parse(line);
    try {
      const act = acts[order.do];
      if (!act) throw new Cannot(order.do);
      say({ n: order.n, ok: (await act(order)) ?? {} });
    } catch (error) {
      answerError(order.n, error);
    } finally {
      delete pending[order.n];
    }
  })
  .on('close', () => process.exit(0));
