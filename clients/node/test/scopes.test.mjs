// A scope of `run` ends with its lock, because whatever was started in the scope may outlive it.

import assert from 'node:assert/strict';
import { EventEmitter, on, once } from 'node:events';
import { createServer, get } from 'node:http';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockLostError, LockMisuseError, LockRefusedError, Locks } = await import(`file://${built}/dist/index.js`);
const { Redis } = createRequire(`${built}/`)('ioredis');

const ends = [];
let redis, locks;
before(async () => {
  redis = new Redis({ port: await startServer((end) => ends.push(end), '--loadmodule', module) });
  locks = new Locks(redis);
});
after(async () => {
  locks.close();
  redis.disconnect();
  for (const end of ends) await end();
});

/** Starts something in the scope. Returns a function that makes it acquire the lock, and one that ends it. */
const STARTED = {
  async 'an HTTP server'(acquire) {
    const server = createServer(async (_, response) => response.end(await acquire())).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const ask = async () => {
      const [response] = await once(get({ port: server.address().port, agent: false }), 'response');
      return Buffer.concat(await response.toArray()).toString();
    };
    return [ask, () => server.close()];
  },
  async 'a timer'(acquire) {
    const wanted = [];
    const timer = setInterval(async () => {
      const resolve = wanted.shift();
      if (resolve) resolve(await acquire());
    }, 5);
    return [() => new Promise((resolve) => wanted.push(resolve)), () => clearInterval(timer)];
  },
  async 'a subscriber'(acquire) {
    const subscriber = redis.duplicate();
    const heard = new EventEmitter();
    subscriber.on('message', async () => heard.emit('done', await acquire()));
    await subscriber.subscribe('work');
    const ask = async () => {
      const done = once(heard, 'done');
      await redis.publish('work', 'now');
      return (await done)[0];
    };
    return [ask, () => subscriber.disconnect()];
  },
  async 'a pool worker'(acquire) {
    const jobs = new EventEmitter();
    const work = async () => {
      for await (const [done] of on(jobs, 'job')) done(await acquire());
    };
    work().catch(() => undefined); // its end
    return [() => new Promise((resolve) => jobs.emit('job', resolve)), () => jobs.emit('error', new Error('end'))];
  },
};

const outcome = (lock) => async () => {
  try {
    const held = await lock.acquire();
    return String(await held.release());
  } catch (error) {
    return error.name;
  }
};

for (const [name, start] of Object.entries(STARTED)) {
  test(`${name} that was started in a scope has locks like any other caller afterwards`, async () => {
    const lock = locks.lock(name, 30_000);
    const [ask, end] = await lock.run(async () => {
      const started = await start(outcome(lock));
      assert.equal(await started[0](), 'LockMisuseError', 'while it is held');
      return started;
    });
    assert.equal(await ask(), 'true');
    const held = await lock.acquire();
    assert.equal(await ask(), 'LockRefusedError', 'somebody else has it');
    await held.release();
    assert.equal(await ask(), 'true');
    end();
  });
}

test('after a release within its scope, the lock can be acquired again', async () => {
  const lock = locks.lock('released', 30_000);
  await lock.run(async (_, held) => {
    await assert.rejects(lock.acquire(), LockMisuseError);
    assert.equal(await held.release(), true);
    const again = await lock.acquire();
    assert(again.token > held.token);
    await lock.acquire().then(assert.fail, (error) => assert(error instanceof LockRefusedError, String(error)));
    await again.release();
    await lock.run((_, inner) => assert(inner.token > again.token));
  });
});

test('after a loss within its scope, the lock can be acquired again', async () => {
  const lock = locks.lock('lost', 300);
  const run = lock.run(async (signal, held) => {
    await redis.del('lost');
    await until('it is lost', () => signal.aborted);
    const again = await lock.acquire();
    assert(again.token > held.token);
    await again.release();
  });
  await assert.rejects(run, LockLostError);
});

test('an outer scope also applies within an inner one, until the outer lock has ended', async () => {
  const [outer, inner] = [locks.lock('outer', 30_000), locks.lock('inner', 30_000)];
  const pages = locks.shared('pages', 30_000);
  await outer.run(async (_, held) => {
    await inner.run(async () => {
      await assert.rejects(outer.acquire(), LockMisuseError);
      await assert.rejects(inner.acquire(), LockMisuseError);
      await assert.rejects(locks.allOf(['x', 'outer'], 30_000).acquire(), LockMisuseError);
      await held.release();
      await (await outer.acquire()).release();
      await assert.rejects(inner.acquire(), LockMisuseError);
    });
    await (await inner.acquire()).release();
    await pages.run(() => pages.run(() => assert.rejects(locks.lock('pages', 30_000).acquire(), LockMisuseError)));
  });
});

const AGAIN = { reentrant: true };

test('a reentrant lock is released as often as it was acquired, or with the outermost scope', async () => {
  const lock = locks.lock('again', 30_000, AGAIN);
  const isHeld = async () => (await redis.exists('again')) === 1;
  await lock.run(async (_, held) => {
    assert.equal(await lock.acquire(), held);
    assert.equal(await held.release(), true);
    assert.equal(await lock.run((signal, inner) => inner === held && signal === held.signal), true);
    await (await lock.acquire())[Symbol.asyncDispose]();
    assert(held.isHeld && (await isHeld()));
    await lock.acquire();
  });
  assert.equal(await isHeld(), false, 'the outermost scope has ended');
  const held = await lock.acquire();
  await assert.rejects(lock.acquire(), LockRefusedError, 'the caller is not known without a scope');
  assert.equal(await held.release(), true);
});

test('a reentrant lock is the same if its keys and its kind are', async () => {
  const both = locks.allOf(['x', 'y'], 30_000, AGAIN);
  await both.run(async (_, held) => {
    assert.equal(await locks.allOf(['y', 'x'], 30_000, AGAIN).acquire(), held);
    for (const other of [
      locks.lock('x', 30_000, AGAIN),
      locks.shared('x', 30_000, AGAIN),
      locks.allOf(['x', 'y', 'z'], 30_000, AGAIN),
      locks.allOf(['x', 'y'], 30_000),
    ])
      await assert.rejects(other.acquire(), LockMisuseError);
  });
  const pages = locks.shared('pages again', 30_000, AGAIN);
  await pages.run(async (_, held) => {
    assert.equal(await pages.acquire(), held);
    await assert.rejects(locks.lock('pages again', 30_000, AGAIN).run(assert.fail), LockMisuseError);
    await locks.shared('pages again', 30_000).run((_, other) => assert.notEqual(other, held));
  });
});

test('a tick is not held again, even by a reentrant lock', async () => {
  const lock = locks.lock('tick', 30_000, AGAIN);
  const { outcome } = await locks.once('tick', 60_000).run(async () => {
    await assert.rejects(lock.acquire(), LockMisuseError);
    await assert.rejects(lock.run(assert.fail), LockMisuseError);
  });
  assert.equal(outcome, 'ran');
});

test('an error in an inner scope releases nothing, and one in the outermost releases all', async () => {
  const lock = locks.lock('failing', 30_000, AGAIN);
  const fails = () => {
    throw new Error('the work failed');
  };
  const run = lock.run(async (_, held) => {
    await assert.rejects(lock.run(fails), /the work failed/);
    await assert.rejects(lock.run(fails, { signal: AbortSignal.abort(new Error('enough')) }), /enough/);
    await assert.rejects(lock.acquire({ signal: AbortSignal.abort(new Error('enough')) }), /enough/);
    held.check();
    await lock.acquire();
    fails();
  });
  await assert.rejects(run, /the work failed/);
  assert.equal(await redis.exists('failing'), 0);
});

test('a loss also fails the inner scopes of a reentrant lock', async () => {
  const lock = locks.lock('lost again', 300, AGAIN);
  const run = lock.run(async (signal) => {
    const inner = lock.run(async () => {
      await redis.del('lost again');
      await until('it is lost', () => signal.aborted);
    });
    await assert.rejects(inner, LockLostError);
    await assert.rejects(
      lock.run(() => assert.fail('once lost, it is a new hold'), { signal: AbortSignal.abort(new Error('enough')) }),
      /enough/,
    );
  });
  await assert.rejects(run, LockLostError);
});

test('scopes that begin in a timer of the previous one retain nothing of it', async () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc');
  const refs = [];
  const step = async (number, done) => {
    let released;
    const after = new Promise((resolve) => (released = resolve));
    await locks.lock(`chain ${number}`, 30_000).run((_, held) => {
      refs.push(new WeakRef(held));
      setTimeout(() => void after.then(() => (number < 50 ? step(number + 1, done) : done())), 0);
    });
    released();
  };
  await new Promise((resolve) => void step(0, resolve));
  await until('they are collected', () => {
    gc();
    return refs.filter((one) => one.deref()).length <= 5;
  });
});

test('a body that waits for nothing but its own signal keeps its lock, and is notified of the loss', async () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc');
  let ended;
  // Nothing refers to the scope: its body waits for a signal that only the hold can abort.
  locks
    .lock('kept', 1500)
    .run((signal) => once(signal, 'abort'))
    .catch((error) => {
      ended = error;
    });
  await until('it is held', async () => (await redis.exists('kept')) === 1);
  await redis.config('RESETSTAT');
  await until('it is renewed', async () => {
    gc();
    return /cmdstat_lock.extend:calls=[^0]/.test(await redis.info('commandstats'));
  });
  await redis.call('DEL', 'kept');
  await until('it is lost', () => ended instanceof LockLostError);
});
