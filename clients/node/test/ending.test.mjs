// Only a pending attempt that somebody awaits keeps a process alive. A hold, a leader, an observer, or a connection of
// a manager that was not closed does not, even when its server is gone.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { module, startServer } from './servers.mjs';

const ends = [];
after(async () => {
  for (const end of ends) await end();
});

const BEGIN = `
import { createRequire } from 'node:module';
const { Locks } = await import('file://' + process.env.SERVERLOCK + '/dist/index.js');
const require = createRequire(process.env.SERVERLOCK + '/');
const [library, port] = process.argv.slice(-2);
const client = library === 'ioredis'
  ? new (require('ioredis').Redis)({ port, maxRetriesPerRequest: null })
  : await require('redis').createClient({ url: 'redis://127.0.0.1:' + port }).connect();
client.on('error', () => undefined);
const locks = new Locks(client);
globalThis.kept = locks;
const held = await locks.lock(library, 30_000).acquire();
/** From now on, the application's own connection does not keep the process alive. */
const unref = () => (library === 'ioredis' ? client.stream.unref() : client.unref());
const end = () => (library === 'ioredis' ? client.disconnect() : client.destroy());
`;

const PROGRAMS = {
  'a manager that was not closed, without its server': [
    `
const waits = [1, 2].map(() => locks.lock(library, 30_000, { wait: 300 }).acquire().catch((error) => error.name));
console.log(...(await Promise.all(waits)));
await held.release();
const shutdown = library === 'ioredis' ? client.call('SHUTDOWN', 'NOSAVE') : client.sendCommand(['SHUTDOWN', 'NOSAVE']);
shutdown.catch(() => undefined);
await new Promise((resolve) => setTimeout(resolve, 500)); // it retries the wait
end();
console.log('done');
`,
    'LockTimeoutError LockTimeoutError\ndone\n',
  ],
  'a wait that is pending is awaited': [
    `
unref();
const waits = [1, 2].map(() => locks.lock(library, 30_000, { wait: 1500 }).acquire().catch((error) => error.name));
console.log(await waits[0], await waits[1]);
const lone = locks.lock(library, 30_000, { wait: 500 }).acquire().catch((error) => error.name);
console.log(await lone);
`,
    'LockTimeoutError LockTimeoutError\nLockTimeoutError\n',
  ],
  'a lone wait that is pending is awaited': [
    `
unref();
console.log(await locks.lock(library, 30_000, { wait: 1500 }).acquire().catch((error) => error.name));
`,
    'LockTimeoutError\n',
  ],
  'a leader, an observer, a campaign and a lock': [
    `
const elected = new Promise((resolve) => locks.leader(library + ' chief', 30_000, { onElected: resolve }).start());
await elected;
locks.leader(library + ' chief', 30_000).start(); // campaigns
locks.leader(library, 30_000).start(); // campaigns for a held lock
const observer = locks.leader(library, 30_000).observe();
await observer.next();
void observer.next();
await new Promise((resolve) => setTimeout(resolve, 300));
unref();
console.log('done');
`,
    'done\n',
  ],
  'a campaign over a client that was ended': [
    `
locks.leader(library, 30_000).start();
await new Promise((resolve) => setTimeout(resolve, 100));
end();
console.log('done');
`,
    'done\n',
  ],
};

for (const library of ['ioredis', 'node-redis']) {
  for (const [name, [program, says]] of Object.entries(PROGRAMS)) {
    test(`${library}: ${name}`, async () => {
      const port = await startServer((end) => ends.push(end), '--loadmodule', module);
      const words = ['--input-type=module', '-e', BEGIN + program, '--', library, port];
      const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
      let said = '';
      child.stdout.on('data', (data) => (said += data));
      const late = setTimeout(() => child.kill('SIGKILL'), 60_000);
      const [status] = await once(child, 'exit');
      clearTimeout(late);
      assert.equal(said, says);
      assert.equal(status, 0, 'the process ends on its own');
    });
  }
}
