// What an attempt, a release and a renewal do when the server answers with a temporary error.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Relay } from './relay.mjs';
import { module, startServer, until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const { Locks } = await import(`file://${built}/dist/index.js`);
const require = createRequire(`${built}/`);
const { Redis } = require('ioredis');
const { createClient } = require('redis');

const PASSING = {
  LOADING: 'LOADING Redis is loading the dataset in memory',
  BUSY: 'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
  MISCONF: 'MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.',
  TRYAGAIN: 'TRYAGAIN Multiple keys request during rehashing of slot',
  CLUSTERDOWN: 'CLUSTERDOWN The cluster is down',
  MASTERDOWN: "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
  READONLY: "READONLY You can't write against a read only replica.",
  MOVED: 'MOVED 1 127.0.0.1:1',
  ASK: 'ASK 1 127.0.0.1:1',
  UNBLOCKED: 'UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)',
  OOM: "OOM command not allowed when used memory > 'maxmemory'.",
  NOREPLICAS: 'NOREPLICAS Not enough good replicas to write.',
  GRACE: 'GRACE 900 ms are left in which this new master grants nothing',
  BUSYLOCKS: 'BUSYLOCKS too many clients wait: see lock.max-waiters',
};
const LASTING = {
  'GRACE lease': 'GRACE lease is longer than 5000 ms',
  'BUSYLOCKS 64 waits': 'BUSYLOCKS 64 waits for several keys have this ID',
};
const OPEN = {
  ioredis: (port) => new Redis({ port }),
  'node-redis': (port) =>
    createClient({ url: `redis://127.0.0.1:${port}` })
      .on('error', () => undefined)
      .connect(),
};

const ends = [];
let relay, plain;
before(async () => {
  const port = await startServer((end) => ends.push(end), '--loadmodule', module);
  relay = await Relay.to(port, (end) => ends.unshift(end));
  plain = new Redis({ port });
});
after(async () => {
  plain.disconnect();
  for (const end of ends) await end();
});
beforeEach(() => plain.flushall());

/** The next `times` of these commands get that error from the relay. Returns a function that counts them. */
function refuse(command, text, times = Infinity) {
  let asked = 0;
  relay.answer = (data) => {
    if (!data.includes(command)) return undefined;
    asked += 1;
    return asked <= times ? `-${text}\r\n` : undefined;
  };
  return () => asked;
}

for (const [library, open] of Object.entries(OPEN)) {
  describe(library, () => {
    let client, locks;
    before(async () => {
      client = await open(relay.port);
      locks = new Locks(client, { timeout: 60_000 });
    });
    after(() => {
      locks.close();
      if (library === 'ioredis') client.disconnect();
      else client.destroy();
    });
    beforeEach(() => (relay.answer = () => undefined));
    const isFree = async () => (await plain.exists('report')) === 0;

    for (const [code, text] of Object.entries(PASSING)) {
      test(`${code} is waited out while wait time remains`, async () => {
        const asked = refuse('LOCK.ACQUIRE', text, 3);
        const held = await locks.lock('report', 30_000, { wait: 60_000 }).acquire();
        assert.equal(asked(), 4);
        assert.equal(await held.release(), true);
        assert(await isFree());
      });

      test(`${code} is unavailable without a wait, after two copies`, async () => {
        const asked = refuse('LOCK.ACQUIRE', text);
        await assert.rejects(locks.lock('report', 30_000).acquire(), {
          code: 'unavailable',
          message: new RegExp(code),
        });
        assert.equal(asked(), 2);
      });

      test(`${code} is a time-out when the wait has ended`, async () => {
        refuse('LOCK.ACQUIRE', text);
        await assert.rejects(locks.lock('report', 30_000, { wait: 50 }).acquire(), {
          code: 'timeout',
          message: new RegExp(code),
        });
      });

      test(`a release that meets ${code} continues in the background`, async () => {
        const held = await locks.lock('report', 30_000).acquire();
        const asked = refuse('LOCK.RELEASE', text, 3);
        assert.equal(await held.release(), true);
        assert.equal(asked(), 4);
        assert(await isFree());
      });

      test(`a renewal that meets ${code} is retried`, async () => {
        const held = await locks.lock('report', 6000).acquire();
        const asked = refuse('LOCK.EXTEND', text, 1);
        await until('it is renewed', () => asked() >= 2);
        held.check();
        await held.release();
      });
    }

    for (const [name, text] of Object.entries(LASTING)) {
      test(`${name} is unavailable at once`, async () => {
        for (const options of [{}, { wait: 60_000 }]) {
          const asked = refuse('LOCK.ACQUIRE', text);
          await assert.rejects(locks.lock('report', 30_000, options).acquire(), {
            code: 'unavailable',
            message: new RegExp(name),
          });
          assert.equal(asked(), 1);
        }
      });
    }

    test('a release continues in the background if the server stays busy for longer than a call may take', async () => {
      const hasty = new Locks(client, { timeout: 100 });
      const held = await hasty.lock('report', 30_000).acquire();
      const asked = refuse('LOCK.RELEASE', PASSING.BUSY);
      assert.equal(await held.release(), true);
      const before = asked();
      await until('it continues', () => asked() > before);
      relay.answer = () => undefined;
      await until('it is free', isFree);
      hasty.close();
    });

    test('a cancelled attempt whose CANCEL meets BUSY is given up in the background', async () => {
      const held = await locks.lock('report', 30_000).acquire();
      const given = new AbortController();
      const wait = locks.lock('report', 30_000, { wait: 60_000 }).acquire({ signal: given.signal });
      const settled = Promise.allSettled([wait]);
      const waiters = async () => (await plain.call('LOCK.INFO', 'report')).at(-3);
      await until('it waits', async () => (await waiters()) === 1);
      const asked = refuse('LOCK.CANCEL', PASSING.BUSY, 3);
      given.abort(new Error('enough'));
      assert.equal((await settled)[0].reason.message, 'enough');
      await until('it is retried', () => asked() >= 4);
      await until('nobody waits', async () => (await waiters()) === 0);
      await held.release();
    });

    test('a refused recover says that the lock is free, if the server says so', async () => {
      const recover = () => locks.recover('report', 30_000).acquire();
      await assert.rejects(recover(), { code: 'refused', message: /: there is nothing to recover: the lock is free$/ });
      for (const text of [PASSING.BUSY, 'NOPERM this user has no permissions to run the command']) {
        const asked = refuse('LOCK.INFO', text);
        await assert.rejects(recover(), { code: 'refused', message: /: somebody else has it$/ });
        assert.equal(asked(), 1);
      }
    });

    test('a refused recover that awaits whether the lock is free can be aborted', async () => {
      let asked = false;
      relay.answer = (data) => {
        if (!data.includes('LOCK.INFO')) return undefined;
        asked = true;
        return ''; // no reply
      };
      const given = new AbortController();
      const attempt = Promise.allSettled([locks.recover('report', 30_000).acquire({ signal: given.signal })]);
      await until('it asks', () => asked);
      given.abort(new Error('enough'));
      assert.equal((await attempt)[0].reason.message, 'enough');
      // The pending reply must not shift those of later commands.
      relay.answer = () => undefined;
      relay.drop();
      await until('the client is connected again', async () => {
        try {
          return await (await locks.lock('other', 30_000).acquire()).release();
        } catch {
          return false;
        }
      });
    });
  });
}
