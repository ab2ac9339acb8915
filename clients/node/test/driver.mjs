// Carries out the orders of clients/suite with this package: `driver.mjs node-redis` or `driver.mjs ioredis`.
// SERVERLOCK is the folder where the package is built, beside the node_modules with the client libraries.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { STORMS } from './storms.mjs';

const folder = process.env.SERVERLOCK;
const { Locks, LockError, LockRefusedError, Once } = await import(pathToFileURL(`${folder}/dist/index.js`).href);
const { Server } = await import(pathToFileURL(`${folder}/dist/testing.js`).href);
const require = createRequire(`${folder}/`);
const library = process.argv[2];

class Work extends Error {}
class Cannot extends Error {}

const clients = {},
  managers = {},
  holds = {},
  objects = {},
  bodies = {},
  workers = {},
  leaders = {},
  pending = {},
  servers = {};
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function answerError(n, error) {
  const [kind, text] =
    error instanceof LockError
      ? [error.code, error.message]
      : error instanceof Work
        ? ['work', error.message]
        : error instanceof Cannot
          ? ['cannot', error.message]
          : error?.name === 'AbortError'
            ? ['cancelled', '']
            : ['unknown', error?.stack ?? String(error)];
  say({ n, error: { kind, text } });
}

/** The strategy from the README, because the default strategy closes a client whose socket timed out. */
const reconnectStrategy = (retries) => Math.min(50 * 2 ** retries, 2000);

async function clientOf(at, protocol, keyPrefix) {
  const auth = { ...(at.user && { username: at.user }), ...(at.password && { password: at.password }) };
  const ca = at.tls && readFileSync(at.tls.ca);
  if (library === 'ioredis') {
    const { Redis, Cluster } = require('ioredis');
    const more = {
      ...auth,
      protocol,
      ...(keyPrefix && { keyPrefix }),
      ...(ca && { tls: { ca } }),
      socketTimeout: 2000,
    };
    const client =
      at.kind === 'cluster'
        ? new Cluster(
            at.nodes.map(([host, port]) => ({ host, port })),
            { redisOptions: more },
          )
        : at.kind === 'sentinel'
          ? new Redis({ sentinels: at.sentinels.map(([host, port]) => ({ host, port })), name: at.master, ...more })
          : at.kind === 'unix'
            ? new Redis({ path: at.path, ...more })
            : new Redis({ host: at.host, port: at.port, ...more });
    client.on('error', () => undefined);
    return client;
  }
  const { createClient, createCluster, createSentinel } = require('redis');
  const more = { ...auth, RESP: protocol };
  const client =
    at.kind === 'cluster'
      ? createCluster({
          rootNodes: at.nodes.map(([host, port]) => ({ socket: { host, port } })),
          defaults: more,
          RESP: protocol,
        })
      : at.kind === 'sentinel'
        ? createSentinel({
            name: at.master,
            sentinelRootNodes: at.sentinels.map(([host, port]) => ({ host, port })),
            nodeClientOptions: more,
          })
        : at.kind === 'unix'
          ? createClient({ socket: { path: at.path }, ...more })
          : createClient({
              socket: {
                host: at.host,
                port: at.port,
                ...(ca && { tls: true, ca }),
                socketTimeout: 2000,
                reconnectStrategy,
              },
              ...more,
            });
  client.on('error', () => undefined);
  const connecting = client.connect().catch(() => undefined);
  await Promise.race([connecting, sleep(at.kind === 'cluster' ? 10_000 : 1000)]);
  return client;
}

const keyOf = (key) => (key !== null && typeof key === 'object' ? Buffer.from(key.hex, 'hex') : key);

/** The callback that reports a loss. */
const reports = (order, name) => (held) => {
  say({ event: 'lost', ...name, text: String(held.lost?.message) });
  return sleep(order.lost_takes_ms ?? 0);
};

function onceOf(order, name) {
  const options = { onLost: reports(order, name) };
  const fields = { lease_ms: 'lease', rerun: 'rerun', owner: 'owner', max_hold_ms: 'maxHold' };
  for (const [field, option] of Object.entries(fields)) if (field in order) options[option] = order[field];
  return managers[order.manager].once(keyOf(order.key), order.period_ms, options);
}

function lockOf(order, name, locks = managers[order.manager]) {
  const options = { onLost: reports(order, name) };
  for (const field of ['session', 'owner', 'reentrant', 'details', 'replicas', 'fsync'])
    if (field in order) options[field] = order[field];
  const durations = {
    wait_ms: 'wait',
    at_least_ms: 'atLeast',
    max_hold_ms: 'maxHold',
    replicas_within_ms: 'replicasWithin',
  };
  for (const [field, option] of Object.entries(durations)) if (field in order) options[option] = order[field];
  if ('keys' in order) return locks.allOf(order.keys.map(keyOf), order.lease_ms, options);
  const key = keyOf(order.key);
  if (order.shared) return locks.shared(key, order.lease_ms, options);
  if ('limit' in order) return locks.limit(key, order.limit, order.lease_ms, options);
  if (order.recover) return locks.recover(key, order.lease_ms, options);
  return locks.lock(key, order.lease_ms, options);
}

const theLock = (order, name) => ('object' in order ? objects[order.object] : lockOf(order, name));
/** Session locks of a scope share a session. */
const ownLock = (order, name, session) =>
  order.session && !('object' in order) ? lockOf(order, name, session) : theLock(order, name);
const heldOf = (order) => ('hold' in order ? holds[order.hold] : bodies[order.scope].held);

function shown(held) {
  const before = held.predecessor;
  return {
    token: held.token,
    predecessor: before && { overdue_ms: before.overdue, token: before.token, owner: before.owner },
  };
}

/** The signal that the `cancel` order aborts. */
function signalOf(order) {
  pending[order.n] = new AbortController();
  return pending[order.n].signal;
}

const acts = {
  async open(order) {
    const hook = (name, field) => (key, ms) => say({ event: 'hook', manager: order.manager, name, key, [field]: ms });
    const options = {
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
    };
    if (order.at.kind === 'memory') {
      servers[order.at.name] ??= new Server();
      managers[order.manager] = servers[order.at.name].locks(options);
      return;
    }
    clients[order.manager] = await clientOf(order.at, order.protocol ?? 2, order.prefix);
    managers[order.manager] = new Locks(clients[order.manager], options);
  },
  advance: (order) => servers[order.name].clock.advance(order.ms),
  expire: (order) => servers[order.name].expire(keyOf(order.key)),
  lose: (order) => servers[order.name].lose(heldOf(order)),
  refuse: (order) => servers[order.name].refuse(keyOf(order.key)),
  allow: (order) => servers[order.name].allow(keyOf(order.key)),
  close: (order) => managers[order.manager].close(),
  async raw(order) {
    const client = clients[order.manager];
    if (!client) return { reply: await managers[order.manager]._engine.wire.call(undefined, order.args) };
    const reply = library === 'ioredis' ? client.call(...order.args) : client.sendCommand(order.args);
    return { reply: await reply };
  },
  object(order) {
    objects[order.object] = lockOf(order, { object: order.object });
  },
  acquire(order) {
    const signal = signalOf(order);
    const acquire = async (lock) => {
      const held = await lock.acquire({ signal });
      holds[order.hold] = held;
      return shown(held);
    };
    if (!('within' in order)) return acquire(theLock(order, { hold: order.hold }));
    const { run, session } = bodies[order.within];
    return inBody(run, async () => {
      const timer = 'cancel_after_ms' in order && setTimeout(() => pending[order.n]?.abort(), order.cancel_after_ms);
      try {
        return await acquire(ownLock(order, { hold: order.hold }, session));
      } finally {
        clearTimeout(timer);
      }
    });
  },
  cancel: (order) => pending[order.of]?.abort(),
  async scope(order) {
    const gaveUp = signalOf(order);
    const session = managers[order.manager].session();
    const body = { lock: ownLock(order, { scope: order.scope }, session), held: undefined, session };
    bodies[order.scope] = body;
    await body.lock.run(bodyOf(order, body), { signal: gaveUp });
  },
  async once(order) {
    const signal = signalOf(order);
    const once = onceOf(order, { scope: order.scope });
    if (!('scope' in order)) {
      const { outcome, value } = await once.run((_, held) => `tick ${held.tick}`, { signal });
      return { outcome, value: value ?? null };
    }
    const body = { lock: once, held: undefined };
    bodies[order.scope] = body;
    const { outcome } = await once.run(bodyOf(order, body), { signal });
    return { outcome };
  },
  single_flight(order) {
    const signal = signalOf(order);
    if (!('within' in order)) return fly(order, signal);
    return inBody(bodies[order.within].run, () => fly(order, signal));
  },
  leave: (order) => bodies[order.scope].run('leave'),
  fail: (order) => bodies[order.scope].run('fail'),
  spawn: (order) => new Promise((resolve) => bodies[order.scope].run(() => void work(order.worker, resolve))),
  again: (order) =>
    inBody('worker' in order ? workers[order.worker] : bodies[order.scope].run, async () => {
      const { lock, again } = bodies[order.scope];
      if (again) return again();
      if (lock instanceof Once) {
        const { outcome } = await lock.run(() => undefined);
        return { outcome };
      }
      if (order.nested) return lock.run((_, held) => shown(held));
      const held = await lock.acquire();
      if ('hold' in order) holds[order.hold] = held;
      return shown(held);
    }),
  async storm(order) {
    const tally = { granted: 0, cancelled: 0, refused: 0, failed: [] };
    const { among: keys, ...fields } = order;
    const lock = Object.fromEntries(keys.map((key) => [key, lockOf({ ...fields, key }, {})]));
    const attempt = (key, signal) =>
      order.single_flight ? fly({ ...fields, key }, signal) : lock[key].run(() => undefined, { signal });
    let left = order.attempts;
    const attempts = async () => {
      while (left-- > 0) {
        const key = keys[Math.floor(Math.random() * keys.length)];
        let at = performance.now() + order.within_ms * Math.random() ** 3;
        if (Math.random() < 0.25) at = Math.ceil(at / 5) * 5; // at the same time as others
        const [signal, end] = STORMS[order.means](at);
        try {
          await attempt(key, signal);
          tally.granted += 1;
        } catch (error) {
          if (error instanceof LockRefusedError) tally.refused += 1;
          else if (signal.aborted && error === signal.reason) tally.cancelled += 1;
          else tally.failed.push(error?.stack ?? String(error));
        } finally {
          end();
        }
      }
    };
    await Promise.all(Array.from({ length: order.at_once }, attempts));
    return { ...tally, failed: tally.failed.slice(0, 10) };
  },
  census() {
    const left = { attempts: 0, waiting: 0, slots: 0, queue: 0, owed: 0, sessions: 0, flights: 0 };
    for (const manager of Object.values(managers)) {
      for (const [name, count] of Object.entries(manager._engine.census())) left[name] += count;
    }
    const resources = process.getActiveResourcesInfo();
    for (const [name, kind] of [
      ['timers', 'Timeout'],
      ['connections', 'TCPSocketWrap'],
    ])
      left[name] = resources.filter((one) => one === kind).length;
    return left;
  },
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
      await sleep(10);
      globalThis.gc?.();
    }
  },
  lead(order) {
    leaders[order.leader] = managers[order.manager]
      .leader(order.key, order.lease_ms, {
        ...('owner' in order && { owner: order.owner }),
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
      for await (const { token, owner } of observer.observe())
        say({ event: 'leader', observer: order.observer, token, owner });
    })();
  },
};

/** The work of a scope, which lasts until the `leave` or `fail` order. */
const bodyOf = (order, body) => async (signal, held) => {
  body.held = held;
  say({ event: 'entered', scope: order.scope, token: held.token });
  for (;;) {
    const work = await new Promise((resolve, reject) => {
      body.run = resolve;
      const stop = () => {
        say({ event: 'stopped', scope: order.scope });
        if (!order.stays) reject(signal.reason);
      };
      if (signal.aborted) order.stays || stop();
      else signal.addEventListener('abort', stop, { once: true });
    });
    if (work === 'leave') return;
    if (work === 'fail') throw new Work('the work failed');
    await work();
  }
};

/** Asks for the value. With a scope, `compute` works like its body. */
async function fly(order, signal) {
  const options = { onLost: reports(order, { scope: order.scope }), ...(signal && { signal }) };
  const fields = { wait_ms: 'wait', owner: 'owner', max_hold_ms: 'maxHold' };
  for (const [field, option] of Object.entries(fields)) if (field in order) options[option] = order[field];
  const body = { held: undefined, again: () => fly({ ...order, scope: undefined }) };
  let computed = false;
  const compute = async (signal, held) => {
    if (order.scope !== undefined) {
      bodies[order.scope] = body;
      await bodyOf(order, body)(signal, held);
    }
    computed = true;
    const { value = '' } = order;
    return value?.hex === undefined ? value : Buffer.from(value.hex, 'hex');
  };
  const value = await managers[order.manager].singleFlight(keyOf(order.key), order.lease_ms, compute, options);
  const text = value.toString();
  return { value: Buffer.from(text).equals(value) ? text : { hex: value.toString('hex') }, computed };
}

/** Acts in a body, or in what was started there. */
const inBody = (run, act) => new Promise((resolve, reject) => run(() => act().then(resolve, reject)));

/** A worker that is started in a scope and outlives it. */
async function work(name, begun) {
  for (;;) {
    const next = new Promise((resolve) => (workers[name] = resolve));
    begun?.();
    begun = undefined;
    await (await next)();
  }
}

const version = require(`${library === 'ioredis' ? 'ioredis' : 'redis'}/package.json`).version;
const can = [
  'sentinel',
  'cluster',
  'tls',
  'unix',
  'cancel',
  'stop',
  'background',
  'session',
  'leader',
  'storm',
  'census',
  'clock',
  'refusals',
  'scopes',
  'moves',
  'queue',
  'few_threads',
  'half_open',
  'once',
  'reentrant',
  'default_owner',
  'recover_free',
  'deadlock',
  'memory',
  'single_flight',
  ...(library === 'ioredis' ? ['prefix'] : []),
  ...(globalThis.gc ? ['drop'] : []),
];
say({ event: 'ready', language: 'node', client: library, version, can, storms: Object.keys(STORMS) });
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
