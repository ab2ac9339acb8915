// A server without the module: attempts wait in the script's queue, with the same messages as with the module.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Relay } from './relay.mjs';
import { startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { LockLostError, Locks } = await import(`file://${built}/dist/index.js`);
const { queueOf } = await import(`file://${built}/dist/request.js`);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createClient } = require('redis');

const OPEN = {
  ioredis: (port, auth) => new Redis({ port, ...auth }),
  'node-redis': (port, auth) =>
    createClient({ url: `redis://127.0.0.1:${port}`, ...auth })
      .on('error', () => undefined)
      .connect(),
};
const QUEUE = 'report:queue:{report}';

const ends = [];
let port, relay, plain;
before(async () => {
  port = await startServer((end) => ends.push(end));
  relay = await Relay.to(port, (end) => ends.unshift(end));
  plain = new Redis({ port });
});
after(async () => {
  plain.disconnect();
  for (const end of ends) await end();
});
beforeEach(() => plain.flushall());

const calls = async (name) => {
  const stat = new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(await plain.info('commandstats'));
  return stat ? Number(stat[1]) : 0;
};
const queued = () => plain.zcard(QUEUE);

test('the queue of a key is in its slot, and none belongs to two keys', () => {
  const named = (key) => queueOf(Buffer.from(key, 'latin1'))?.toString('latin1');
  assert.equal(named('report'), 'report:queue:{report}');
  assert.equal(named('\xff\0'), '\xff\0:queue:{\xff\0}');
  assert.equal(named('{42}:report'), '{42}:report:queue');
  assert.equal(named('a{b}c}'), 'a{b}c}:queue');
  for (const key of ['{', '}', 'a{}b', '{}{a}', 'a}b', 'a{b']) assert.equal(named(key), undefined, key);
});

for (const [library, open] of Object.entries(OPEN)) {
  describe(library, () => {
    const clients = [];
    let locks;
    const opened = async (auth, at = port) => {
      const client = await open(at, auth);
      const manager = new Locks(client, { warnWithoutModule: false });
      clients.push([client, manager]);
      return manager;
    };
    /** Over the relay. The script has already been loaded: it would not arrive in one piece. */
    const relayed = async (options) => {
      const manager = await opened(options, relay.port);
      await (await manager.lock('other', 30_000).acquire()).release();
      return manager;
    };
    before(async () => {
      locks = await opened();
    });
    after(() => {
      for (const [client, manager] of clients) {
        manager.close();
        if (library === 'ioredis') client.disconnect();
        else client.destroy();
      }
    });

    test('waiters are served in order of arrival, without polling', async () => {
      const held = await locks.lock('report', 600_000).acquire();
      const order = [];
      const waits = [];
      for (const number of [0, 1, 2]) {
        const wait = locks.lock('report', 600_000, { wait: 600_000 }).acquire();
        waits.push(wait.then((got) => order.push(number) && got));
        await until('it has its place', async () => (await queued()) === number + 1);
      }
      const before = await calls('evalsha');
      await new Promise((resolve) => setTimeout(resolve, 1000));
      assert((await calls('evalsha')) <= before + 1, 'they wait for a message');
      assert.equal(await held.release(), true);
      for (const number of [0, 1, 2]) {
        assert.equal(await (await waits[number]).release(), true);
        assert.deepEqual(order, [0, 1, 2].slice(0, number + 1));
      }
      assert.deepEqual(await plain.keys('*'), []);
    });

    test('details arrive with the claim', async () => {
      await locks.lock('report', 30_000).acquire();
      const wait = locks.lock('report', 30_000, { wait: 600_000, details: true }).acquire();
      await until('it has its place', async () => (await queued()) === 1);
      await plain.set('report', '1000000000.0000001234567890123456 alice');
      const held = await wait;
      assert.deepEqual([held.predecessor.owner, held.predecessor.token], ['alice', 1234567890123456]);
      assert.equal(await held.release(), true);
    });

    test('a cancelled attempt leaves no place, and the next gets the lock', async () => {
      const held = await locks.lock('report', 600_000).acquire();
      const given = new AbortController();
      const first = locks.lock('report', 600_000, { wait: 600_000 }).acquire({ signal: given.signal });
      const settled = Promise.allSettled([first]);
      await until('it has its place', async () => (await queued()) === 1);
      const second = locks.lock('report', 600_000, { wait: 600_000 }).acquire();
      await until('it has its place', async () => (await queued()) === 2);
      given.abort();
      assert.equal((await settled)[0].status, 'rejected');
      assert.equal(await queued(), 1);
      await held.release();
      assert.equal(await (await second).release(), true);
    });

    test('an attempt whose wait has ended leaves no place', async () => {
      const held = await locks.lock('report', 600_000).acquire();
      await assert.rejects(locks.lock('report', 600_000, { wait: 300 }).acquire(), { code: 'timeout' });
      assert.equal(await queued(), 0);
      await held.release();
    });

    test('readers share a lock, a writer waits for them, and each can be checked', async () => {
      const readers = await Promise.all([1, 2].map(() => locks.shared('report', 30_000).acquire()));
      await assert.rejects(locks.lock('report', 30_000).acquire(), { code: 'refused' });
      const writer = locks.lock('report', 30_000, { wait: 600_000 }).acquire();
      await until('it has its place', async () => (await queued()) === 1);
      for (const held of readers) {
        await held.extend(60_000);
        assert((await held.verify()) > 40_000);
        assert.equal(await held.fenced('SET', 'x', held.token), 'OK');
        assert.equal(await held.release(), true);
      }
      await assert.rejects(readers[0].fenced('SET', 'x', 'late'), LockLostError);
      assert.equal(await (await writer).release(), true);
      assert.equal(await plain.get('x'), String(readers[1].token));
    });

    test('a reader whose grant was taken away runs nothing', async () => {
      const held = await locks.shared('report', 30_000).acquire();
      await plain.del('report');
      await assert.rejects(held.fenced('SET', 'x', 'late'), LockLostError);
      assert.equal(await plain.exists('x'), 0);
    });

    test('a limit admits its number of holders, and the next when one leaves', async () => {
      const lock = locks.limit('report', 2, 30_000, { wait: 600_000 });
      const [first, second] = [await lock.acquire(), await lock.acquire()];
      const third = lock.acquire();
      await until('it has its place', async () => (await queued()) === 1);
      assert.equal(await first.release(), true);
      const held = await third;
      assert.equal(await held.release(), true);
      assert.equal(await second.release(), true);
      assert.deepEqual(await plain.keys('*'), []);
    });

    test('an attempt for several keys gets all or none, and waits for them', async () => {
      const held = await locks.lock('a', 30_000).acquire();
      await assert.rejects(locks.allOf(['a', 'b'], 30_000).acquire(), { code: 'refused' });
      assert.equal(await plain.exists('b'), 0);
      const wait = locks.allOf(['a', 'b'], 30_000, { wait: 600_000, owner: 'alice' }).acquire();
      await held.release();
      const both = await wait;
      await both.extend(60_000);
      assert((await both.verify()) > 40_000);
      assert.equal(await both.fenced('SET', 'x', '1'), 'OK');
      assert.equal(await both.release(), true);
      const taken = await locks.allOf(['a', 'b'], 30_000).acquire();
      await plain.del('b');
      assert.equal(await taken.release(), false);
    });

    test('an attempt for several keys whose reply is lost releases what it got', async () => {
      const slow = await relayed();
      relay.answer = (data) => (data.includes('lock_acquire_all') ? '-BUSY is how it looks\r\n' : undefined);
      await assert.rejects(slow.allOf(['a', 'b'], 30_000).acquire(), { code: 'unavailable' });
      relay.answer = () => undefined;
      await until('none is held', async () => (await plain.exists('a', 'b')) === 0);
    });

    test('a key with a brace but no hash tag has no queue: a plain lock polls, others say why they cannot', async () => {
      const held = await locks.lock('a}', 30_000).acquire();
      const wait = locks.lock('a}', 30_000, { wait: 600_000 }).acquire();
      const before = await calls('evalsha');
      await until('it polls', async () => (await calls('evalsha')) > before + 3);
      assert.equal(await held.release(), true);
      assert.equal(await (await wait).release(), true);
      for (const lock of [locks.shared('a}', 1000), locks.limit('a}', 2, 1000), locks.allOf(['a', 'a}'], 1000)])
        await assert.rejects(lock.acquire(), { code: 'unavailable', message: /brace but no hash tag.*module/ });
      await assert.rejects(locks.lock('report', 1000, { session: true }).acquire(), { code: 'unavailable' });
    });

    test('an attempt that the module had queued joins the queue once it is subscribed', async () => {
      const theirs = await opened(undefined, relay.port);
      theirs._engine.blocking.end(); // it waits for messages
      const held = await locks.lock('report', 30_000).acquire();
      let hasModule = true;
      relay.answer = (data) => {
        if (/\r\nSUBSCRIBE\r\n/i.test(data)) return '';
        if (!hasModule || !data.includes('LOCK.ACQUIRE')) return undefined;
        if (!data.includes('NOTIFY')) return '$-1\r\n';
        hasModule = false;
        return '+WAITING\r\n';
      };
      const wait = theirs.lock('report', 30_000, { wait: 600_000 }).acquire();
      const before = await calls('evalsha');
      await until('it asks the script', async () => (await calls('evalsha')) > before + 2);
      assert.equal(await queued(), 0);
      relay.answer = () => undefined;
      relay.drop();
      await until('it has its place', async () => (await queued()) === 1);
      assert.equal(await held.release(), true);
      assert.equal(await (await wait).release(), true);
    });

    test('a user who may not use the queue polls, and tries it again once a minute', async () => {
      await plain.call('ACL', 'SETUSER', 'narrow', 'reset', 'on', '>secret', '~report', '&*', '+@all');
      await plain.call('ACL', 'LOG', 'RESET');
      const theirs = await opened({ username: 'narrow', password: 'secret' });
      const held = await theirs.lock('report', 30_000).acquire();
      const wait = theirs.lock('report', 30_000, { wait: 600_000 }).acquire();
      const before = await calls('evalsha');
      await until('it polls', async () => (await calls('evalsha')) > before + 3);
      await held.extend(30_000);
      assert((await held.verify()) > 0);
      assert.equal(await held.release(), true);
      assert.equal(await (await wait).release(), true);
      const denied = (await plain.call('ACL', 'LOG')).map((fields) => fields[fields.indexOf('object') + 1]);
      assert.deepEqual(denied, [QUEUE]);
      await assert.rejects(theirs.lock('other', 30_000).acquire(), { code: 'denied' });
      await assert.rejects(theirs.shared('report', 30_000).acquire(), { code: 'denied' });
    });

    test('a user who may not subscribe polls with the lock alone, and its release notifies others', async () => {
      await plain.call('ACL', 'SETUSER', 'deaf', 'reset', 'on', '>secret', '~*', '+@all', '-subscribe', '&*');
      const theirs = await opened({ username: 'deaf', password: 'secret' });
      const held = await locks.lock('report', 600_000).acquire();
      const wait = theirs.lock('report', 600_000, { wait: 600_000 }).acquire();
      const before = await calls('evalsha');
      await until('it polls', async () => (await calls('evalsha')) > before + 3);
      assert.equal(await queued(), 0);
      await held.release();
      const got = await wait;
      const ours = locks.lock('report', 600_000, { wait: 600_000 }).acquire();
      await until('it has its place', async () => (await queued()) === 1);
      const [asked, published] = [await calls('evalsha'), await calls('publish')];
      assert.equal(await got.release(), true);
      assert.equal(await (await ours).release(), true);
      assert.equal((await calls('publish')) - published, 1);
      assert((await calls('evalsha')) - asked <= 4);
    });

    test('while a slot is moving, calls name the lock alone', async () => {
      const theirs = await relayed();
      const two = [];
      relay.answer = (data) => {
        if (!/lock_(acquire|release)/.test(data) || !data.includes(QUEUE)) return undefined;
        two.push(data);
        return '-TRYAGAIN Multiple keys request during rehashing of slot\r\n';
      };
      const held = await locks.lock('report', 30_000).acquire();
      const wait = theirs.lock('report', 30_000, { wait: 600_000 }).acquire();
      await until('it polls', () => two.length > 4);
      assert.equal(await held.release(), true);
      const got = await wait;
      assert.equal(await got.release(), true);
      assert(two.at(-1).includes('lock_release'));
      relay.answer = (data) => (data.includes('lock_') ? '-TRYAGAIN it moves\r\n' : undefined);
      await assert.rejects(theirs.shared('report', 30_000).acquire(), { code: 'unavailable' });
      relay.answer = () => undefined;
    });

    test('after an unanswered copy, an attempt is cancelled at once, and again two seconds later', async () => {
      const theirs = await relayed({ maxRetriesPerRequest: 0 });
      const [asked, cancels] = [[], []];
      relay.answer = (data) => {
        if (data.includes('lock_cancel')) cancels.push(performance.now());
        if (!data.includes('lock_acquire')) return undefined;
        asked.push(data);
        relay.drop();
        return '';
      };
      await assert.rejects(theirs.lock('report', 30_000).acquire(), { code: 'no_server' });
      assert(asked.length >= 1);
      await until('it is cancelled twice', () => cancels.length >= 2);
      relay.answer = () => undefined;
      assert(cancels.at(-1) - cancels[0] > 1000);
    });
  });
}
