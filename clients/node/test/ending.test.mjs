// A manager that was not closed keeps no process from ending, also when its server is gone.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const built = process.env.SERVERLOCK;
const root = fileURLToPath(new URL('../../..', import.meta.url));
const module = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'release/libredis_lock.so');

const PROGRAM = `
import { createRequire } from 'node:module';
import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
const { Locks } = await import('file://' + process.env.SERVERLOCK + '/dist/index.js');
const require = createRequire(process.env.SERVERLOCK + '/');
const [library, module, port] = process.argv.slice(-3);
const server = spawn(process.env.REDIS_SERVER ?? 'redis-server',
  ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', tmpdir(), '--loadmodule', module]);
let log = '';
await new Promise((resolve, reject) => {
  server.stdout.on('data', (data) => (log += data).includes('Ready to accept connections') && resolve());
  server.on('exit', () => reject(new Error(log)));
});
const client = library === 'ioredis'
  ? new (require('ioredis').Redis)({ port })
  : await require('redis').createClient({ url: 'redis://127.0.0.1:' + port }).connect();
client.on('error', () => undefined);
const locks = new Locks(client);
const held = await locks.lock('a', 30_000).acquire();
const waits = [1, 2].map(() => locks.lock('a', 30_000, { wait: 300 }).acquire().catch((error) => error.name));
console.log(...(await Promise.all(waits)));
await held.release();
server.removeAllListeners('exit');
server.kill('SIGKILL');
await once(server, 'exit');
await new Promise((resolve) => setTimeout(resolve, 500)); // it tries to wait again
library === 'ioredis' ? client.disconnect() : client.destroy();
globalThis.kept = locks;
console.log('done');
`;

for (const library of ['ioredis', 'node-redis']) {
  test(`with ${library}`, async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address();
    probe.close();
    await once(probe, 'close');
    const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, '--', library, module, port], { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.on('data', (data) => (said += data));
    const late = setTimeout(() => child.kill('SIGKILL'), 20_000);
    const [status] = await once(child, 'exit');
    clearTimeout(late);
    assert.equal(said, 'LockTimeout LockTimeout\ndone\n');
    assert.equal(status, 0);
  });
}
