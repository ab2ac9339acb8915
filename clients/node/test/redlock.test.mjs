// `serverlock/redlock` has the interface of redlock 5.
//
// The first tests are the cases of node-redlock's own (v5.0.0-beta.2, src/single.test.ts), which need a server and a
// cluster at fixed names and the runner ava. They differ in this: a duration is at most ten years; the token is
// checked with LOCK.CHECK, because the key holds more; a failed attempt has one entry in `attempts`, not eleven,
// because it is queued once. src/multi.test.ts is about several masters and is left out.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { freePort, module, root, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const {
  default: Redlock,
  ExecutionError,
  Lock,
  ResourceLockedError,
} = await import(pathToFileURL(`${built}/dist/redlock.js`).href);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createClient } = require('redis');

const LONG = 3_000_000_000;
const HASTY = { retryCount: 2, retryDelay: 50, retryJitter: 0 };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns the error that it rejects with. */
async function caught(promise, type = ExecutionError) {
  const error = await promise.then(
    () => assert.fail('it does not fail'),
    (error) => error,
  );
  assert(error instanceof type, String(error));
  return error;
}

const ends = [];
const atEnd = (end) => ends.unshift(end);
after(async () => {
  for (const end of ends) await end();
});

function ioredis(port, options = {}) {
  const client = new Redis({ port, ...options });
  client.on('error', () => undefined);
  atEnd(() => client.disconnect());
  return [client, (...words) => client.call(...words.map(String))];
}

async function nodeRedis(port) {
  const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
  atEnd(() => client.destroy());
  return [client, (...words) => client.sendCommand(words.map(String))];
}

const OPEN = { ioredis, 'node-redis': nodeRedis };

for (const library of Object.keys(OPEN)) {
  describe(library, () => {
    let client, call;
    before(async () => {
      [client, call] = await OPEN[library](await startServer(atEnd, '--loadmodule', module, 'margin-ms', 0));
    });
    const isHeld = async (key, value) => (await call('LOCK.CHECK', key, value)) > 0;
    const lasts = async (key, value, duration) =>
      assert(Math.abs((await call('LOCK.CHECK', key, value)) - duration) <= 1000);

    /** The attempt was refused because somebody else has it. */
    async function isTaken(attempt) {
      const { attempts } = await caught(attempt);
      assert.equal(attempts.length, 1);
      const { membershipSize, quorumSize, votesFor, votesAgainst } = await attempts[0];
      assert.deepEqual([membershipSize, quorumSize, votesFor.size], [1, 1, 0]);
      assert(votesAgainst.get(client) instanceof ResourceLockedError);
    }

    test('refuses to use a non-integer duration', async () => {
      const redlock = new Redlock([client]);
      for (const attempt of [redlock.acquire(['float'], 0.5), redlock.using(['float'], 1000.5, async () => 1)]) {
        await assert.rejects(attempt, { message: 'Duration must be an integer value in milliseconds.' });
      }
    });

    test('acquires, extends, and releases a single lock', async () => {
      const redlock = new Redlock([client]);
      let lock = await redlock.acquire(['a'], LONG);
      assert(lock instanceof Lock && lock.redlock === redlock);
      await lasts('a', lock.value, LONG);
      const first = lock;
      lock = await lock.extend(3 * LONG);
      assert.deepEqual([first.expiration, lock.value, lock.resources], [0, first.value, ['a']]);
      await lasts('a', lock.value, 3 * LONG);
      assert(Math.abs(lock.expiration - Date.now() - 2.97 * LONG) < 5000);
      const { attempts, start } = await lock.release();
      assert((await attempts[0]).votesFor.has(client) && start <= Date.now());
      assert.equal(await call('EXISTS', 'a'), 0);
    });

    test('sends no owner, because other programs may expect a pure number', async () => {
      const redlock = new Redlock([client]);
      const lock = await redlock.acquire(['pure'], LONG);
      assert.match(await call('GET', 'pure'), /^\d+\.\d+$/);
      await redlock.using(['used'], LONG, async () => assert.match(await call('GET', 'used'), /^\d+\.\d+$/));
      await lock.release();
    });

    test('acquires, extends, and releases a multi-resource lock', async () => {
      let lock = await new Redlock([client]).acquire(['a1', 'a2'], LONG);
      for (const key of ['a1', 'a2']) await lasts(key, lock.value, LONG);
      lock = await lock.extend(3 * LONG);
      for (const key of ['a1', 'a2']) await lasts(key, lock.value, 3 * LONG);
      await lock.release();
      assert.equal(await call('EXISTS', 'a1', 'a2'), 0);
    });

    test('locks automatically expire', async () => {
      const redlock = new Redlock([client]);
      const lock = await redlock.acquire(['d'], 200);
      assert(await isHeld('d', lock.value));
      await sleep(300);
      await assert.rejects(lock.extend(200), { message: 'Cannot extend an already-expired lock.', attempts: [] });
      const lock2 = await redlock.acquire(['d'], 2000);
      assert(await isHeld('d', lock2.value));
      await isTaken(lock.release());
      await lock2.release();
      assert.equal(await call('EXISTS', 'd'), 0);
    });

    test('individual locks are exclusive', async () => {
      const redlock = new Redlock([client]);
      const lock = await redlock.acquire(['c'], LONG);
      await isTaken(redlock.acquire(['c'], LONG, HASTY));
      assert(await isHeld('c', lock.value));
      await lock.release();
      assert.equal(await call('EXISTS', 'c'), 0);
    });

    test('overlapping multi-locks are exclusive', async () => {
      const redlock = new Redlock([client], HASTY);
      const lock = await redlock.acquire(['c1', 'c2'], LONG);
      await isTaken(redlock.acquire(['c2', 'c3'], LONG));
      assert((await isHeld('c1', lock.value)) && (await isHeld('c2', lock.value)));
      assert.equal(await call('EXISTS', 'c3'), 0);
      await lock.release();
      assert.equal(await call('EXISTS', 'c1', 'c2', 'c3'), 0);
    });

    /** Returns once the lease has become longer again. */
    const isRenewed = async (key, value, duration) => {
      await until('part of the lease has passed', async () => (await call('LOCK.CHECK', key, value)) < 0.8 * duration);
      await until('it is renewed', async () => (await call('LOCK.CHECK', key, value)) > 0.9 * duration);
    };

    const token = async (key) => {
      const fields = await call('LOCK.INFO', key);
      return Array.isArray(fields) ? fields[fields.indexOf('token') + 1] : fields.token;
    };

    test('the `using` helper acquires, extends, and releases locks', async () => {
      const redlock = new Redlock([client]);
      const value = await redlock.using(['x'], 6000, { automaticExtensionThreshold: 400 }, async (signal) => {
        const value = await token('x');
        await isRenewed('x', value, 6000);
        assert.deepEqual([signal.aborted, signal.error, await token('x')], [false, undefined, value]);
        return value;
      });
      assert(value > 0);
      assert.equal(await call('EXISTS', 'x'), 0);
    });

    test('the `using` helper is exclusive', async () => {
      const redlock = new Redlock([client], { retryCount: -1 });
      let locked = false;
      const use = () =>
        redlock.using(['y'], 6000, { automaticExtensionThreshold: 400 }, async (signal) => {
          assert(!locked);
          locked = true;
          const value = await token('y');
          await isRenewed('y', value, 6000);
          assert.deepEqual([signal.aborted, signal.error, await token('y')], [false, undefined, value]);
          locked = false;
          return value;
        });
      const [first, second] = await Promise.all([use(), use()]);
      assert.notEqual(first, second);
      assert.equal(await call('EXISTS', 'y'), 0);
    });

    // Beyond node-redlock's own tests.

    test('waiters are queued for as long as the retries would take', async () => {
      const redlock = new Redlock([client], { retryCount: -1 });
      const lock = await redlock.acquire(['queue'], LONG);
      const began = Date.now();
      await isTaken(redlock.acquire(['queue'], LONG, { retryCount: 4, retryDelay: 100 }));
      assert(Date.now() - began >= 390 && Date.now() - began < 5000, String(Date.now() - began));
      const order = [];
      const waits = [];
      for (const number of [0, 1, 2]) {
        const wait = async () => {
          const got = await redlock.acquire(['queue'], 5000);
          order.push(number);
          return got.release();
        };
        waits.push(wait());
        await until('it is queued', async () => {
          const fields = await call('LOCK.INFO', 'queue');
          return (Array.isArray(fields) ? fields[fields.indexOf('waiters') + 1] : fields.waiters) === number + 1;
        });
      }
      await lock.release();
      await Promise.all(waits);
      assert.deepEqual(order, [0, 1, 2]);
    });

    test('`using` reports a loss through its signal, and when it ends', async () => {
      const redlock = new Redlock([client]);
      const heard = [];
      redlock.on('error', (error) => heard.push(error));
      const used = redlock.using(['lost'], 6000, { automaticExtensionThreshold: 300 }, async (signal) => {
        await call('DEL', 'lost');
        await once(signal, 'abort');
        assert(signal.aborted && signal.error instanceof ExecutionError);
        assert.equal(signal.reason, signal.error);
      });
      await isTaken(used);
      assert(heard.length > 0 && heard.every((error) => error instanceof ResourceLockedError));
      await assert.rejects(
        redlock.using(['lost'], 6000, { automaticExtensionThreshold: 300 }, async () => {
          throw new TypeError('mine');
        }),
        { message: 'mine' },
      );
      assert.equal(await call('EXISTS', 'lost'), 0);
      await assert.rejects(
        redlock.using(['lost'], 550, async () => 1),
        /at least 100ms greater/,
      );
    });

    test('a lock from `acquire` is not renewed, and is held for its whole duration', async () => {
      const redlock = new Redlock([client]);
      const lock = await redlock.acquire(['ends'], 3_600_000);
      const { now } = Date;
      Date.now = () => now() + 0.95 * 3_600_000; // for the client; the server's clock keeps running
      try {
        await lock.release(); // in its last tenth
      } finally {
        Date.now = now;
      }
      const second = await redlock.acquire(['ends'], 300);
      await until('it has ended', async () => (await call('LOCK.CHECK', 'ends', second.value)) <= 0);
    });

    test('a lock can be built from its value', async () => {
      const redlock = new Redlock([client]);
      const lock = await redlock.acquire(['travels'], 5000);
      const other = new Redlock([client]);
      const copy = new Lock(other, ['travels'], lock.value, [], lock.expiration);
      const longer = await copy.extend(9000);
      await lasts('travels', longer.value, 9000);
      await new Lock(other, ['travels'], lock.value, [], lock.expiration).release();
      assert.equal(await call('EXISTS', 'travels'), 0);
      await isTaken(new Lock(other, ['travels'], 'mine', [], Date.now() + 1000).release());
    });

    test('server errors are votes against', async () => {
      const redlock = new Redlock([client], HASTY);
      await call('RPUSH', 'list', 'x');
      for (const [resources, duration, says] of [
        [['list'], 1000, /WRONGTYPE/],
        [['a'], 0, /lease/],
        [[], 1000, /keys/],
      ]) {
        const { attempts } = await caught(redlock.acquire(resources, duration));
        assert.match((await attempts[0]).votesAgainst.get(client).message, says);
      }
    });
  });
}

test('locks fail when redis is unreachable', async () => {
  const [client] = ioredis(await freePort(), { maxRetriesPerRequest: 0, retryStrategy: () => null });
  const { attempts } = await caught(new Redlock([client], HASTY).acquire(['b'], 30_000));
  const [vote] = (await attempts[0]).votesAgainst.values();
  assert.equal(vote.name, 'LockNoServerError');
});

test('it takes one client, and no scripts', () => {
  const client = new Redis({ lazyConnect: true });
  assert.throws(() => new Redlock([]), /at least one redis client/);
  assert.throws(() => new Redlock([client, new Redis({ lazyConnect: true })]), /takes one client/);
  assert.throws(() => new Redlock([client], {}, { acquireScript: 'return 1' }), /no scripts/);
  assert.deepEqual(new Redlock([client], { retryCount: 3, retryDelay: 'x' }).settings.retryDelay, 200);
});

test('without the module, it works through the script', async () => {
  const [client] = ioredis(await startServer(atEnd));
  const redlock = new Redlock([client], HASTY);
  const lock = await (await redlock.acquire(['a'], 5000)).extend(6000);
  await assert.rejects(redlock.acquire(['a'], 5000), ExecutionError);
  await lock.release();
  assert.equal(await client.exists('a'), 0);
});

const PROGRAM = `
import { Redis } from 'ioredis';
import Redlock from 'redlock';

const client = new Redis(Number(process.argv[2]));
const redlock = new Redlock([client], { retryCount: 1 });
const lock = await (await redlock.acquire(['report'], 30_000)).extend(20_000);
console.log(await redlock.acquire(['report'], 30_000).catch((error) => error.name));
await lock.release();
console.log(await redlock.using(['report'], 30_000, async (signal) => signal.aborted), await client.exists('report'));
client.disconnect();
`;

test('docs/MIGRATING.md names the line to change', async () => {
  const page = readFileSync(join(root, 'docs/MIGRATING.md'), 'utf8');
  const [, old, now] = /```diff\n-(import Redlock .*)\n\+(.*)\n```/.exec(page);
  const changed = PROGRAM.replace(`${old}\n`, `${now}\n`);
  assert.notEqual(changed, PROGRAM);
  const port = await startServer(atEnd, '--loadmodule', module);
  const [client] = ioredis(port);
  const folder = mkdtempSync(join(tmpdir(), 'serverlock-'));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'node_modules/serverlock'), { recursive: true });
  cpSync(join(root, 'clients/node/package.json'), join(folder, 'node_modules/serverlock/package.json'));
  cpSync(join(built, 'dist'), join(folder, 'node_modules/serverlock/dist'), { recursive: true });
  for (const [name, from] of [
    ['ioredis', 'ioredis'],
    ['redlock', 'redlock-5'],
  ])
    symlinkSync(join(built, 'node_modules', from), join(folder, 'node_modules', name));
  for (const text of [PROGRAM, changed]) {
    writeFileSync(join(folder, 'program.mjs'), text);
    const said = execFileSync(process.execPath, ['program.mjs', port], { cwd: folder, encoding: 'utf8' });
    assert.equal(said, 'ExecutionError\nfalse 0\n');
    assert.equal(/cmdstat_lock.acquire/i.test(await client.info('commandstats')), text === changed);
  }
});
