// The package as users get it: packed, installed into an empty project, typed; its README runs.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const home = fileURLToPath(new URL('..', import.meta.url));
const root = fileURLToPath(new URL('../../..', import.meta.url));
const built = process.env.SERVERLOCK;
const modules = join(built, 'node_modules');
const module = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'release/libredis_lock.so');
const run = (command, args, cwd) => execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

let folder, server, port;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'serverlock-'));
  port = await new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
  const words = ['--port', port, '--save', '', '--dir', folder, '--loadmodule', module].map(String);
  server = spawn(process.env.REDIS_SERVER ?? 'redis-server', words);
  let log = '';
  await new Promise((resolve, reject) => {
    server.stdout.on('data', (data) => (log += data).includes('Ready to accept connections') && resolve());
    server.on('exit', () => reject(new Error(log)));
  });
});

after(() => {
  server.removeAllListeners('exit');
  server.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** A project with nothing but the packed package and the client libraries. */
function project() {
  const made = mkdtempSync(join(folder, 'project-'));
  const source = join(made, 'source');
  mkdirSync(join(source, 'dist'), { recursive: true });
  for (const file of ['package.json', 'README.md', 'LICENSE']) cpSync(join(home, file), join(source, file));
  cpSync(join(built, 'dist'), join(source, 'dist'), { recursive: true });
  const [packed] = JSON.parse(run('npm', ['pack', '--json', '--silent'], source));
  const names = packed.files.map(({ path }) => path);
  for (const name of ['README.md', 'LICENSE', 'dist/index.js', 'dist/index.d.ts', 'dist/lock.lua']) assert(names.includes(name), name);
  assert(!names.some((name) => name.startsWith('src/') || name.startsWith('test/')), String(names));
  writeFileSync(join(made, 'package.json'), '{ "type": "module", "private": true }');
  mkdirSync(join(made, 'node_modules/serverlock'), { recursive: true });
  run('tar', ['-xzf', packed.filename, '-C', join(made, 'node_modules/serverlock'), '--strip-components=1'], source);
  for (const name of ['redis', '@redis', 'ioredis', '@types', '@opentelemetry']) symlinkSync(join(modules, name), join(made, 'node_modules', name));
  return made;
}

test('the examples of the README run in an empty project', () => {
  const made = project();
  const blocks = [...readFileSync(join(home, 'README.md'), 'utf8').matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block);
  assert.equal(blocks.length, 2);
  for (const block of blocks) {
    const example = block
      .replace('createClient()', `createClient({ url: 'redis://127.0.0.1:${port}' })`)
      .replace('new Redis()', `new Redis(${port})`);
    assert.notEqual(example, block);
    writeFileSync(join(made, 'example.js'), example);
    assert.match(run(process.execPath, ['example.js'], made), /token \d+|held to the end: true/);
  }
});

test('its users are typed', () => {
  const made = project();
  const use = `import { createClient } from 'redis';
import { Redis } from 'ioredis';
import { Held, Locks } from 'serverlock';
import Redlock, { ExecutionError, type Lock } from 'serverlock/redlock';
const lock: Lock = await new Redlock([new Redis()], { retryCount: 3 }).acquire(['a'], 1000);
const name: string = await lock.redlock.using(['b'], 1000, async (signal) => signal.error?.message ?? ExecutionError.name);
console.log(name, (await lock.extend(500)).expiration);
const locks = [new Locks(createClient()), new Locks(new Redis())];
const held: Held = await locks[0]!.lock('a', 1000, { wait: 5 }).acquire();
const sum: number = await locks[1]!.shared('a', 1000).run((signal: AbortSignal, held) => held.token + Number(signal.aborted));
console.log(held.left() + sum);
`;
  const tsc = [join(modules, 'typescript/bin/tsc'), '--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--skipLibCheck', 'use.ts'];
  writeFileSync(join(made, 'use.ts'), use);
  run(process.execPath, tsc, made);
  writeFileSync(join(made, 'use.ts'), use.replace('wait: 5', 'wiat: 5'));
  assert.throws(() => run(process.execPath, tsc, made), (error) => /wiat/.test(error.stdout));
});

test('the examples of the repository run', () => {
  const made = project();
  const text = readFileSync(join(root, 'examples/node/report.mjs'), 'utf8');
  const example = text.replace('createClient()', `createClient({ url: 'redis://127.0.0.1:${port}' })`).replace('step < 10', 'step < 1');
  assert.notEqual(example, text);
  writeFileSync(join(made, 'report.mjs'), example);
  assert.match(run(process.execPath, ['report.mjs'], made), /^working, token \d+$/m);
});

/** One lock that is refused to another and released in time, and one that is taken away. */
const TELEMETRY = `
import { metrics } from '@opentelemetry/api';
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
import { createClient } from 'redis';
import { Locks } from 'serverlock';
import { telemetry } from './opentelemetry-hooks.mjs';

class Reader extends MetricReader {
  async onForceFlush() {}
  async onShutdown() {}
}
const reader = new Reader();
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
const client = await createClient({ url: process.argv[2] }).connect();
const locks = new Locks(client, { hooks: telemetry() });
const held = await locks.lock('a', 30_000).acquire();
await locks.lock('a', 30_000).acquire().catch(() => held.release());
const taken = await locks.lock('b', 30_000).acquire();
await client.sendCommand(['LOCK.RELEASE', 'b', String(taken.token)]);
await taken.extend().catch(() => taken.release());
const { resourceMetrics } = await reader.collect();
const lines = resourceMetrics.scopeMetrics[0].metrics.flatMap(({ descriptor, dataPoints }) =>
  dataPoints.map(({ attributes, value }) => [descriptor.name, attributes['lock.outcome'], value.count ?? value].join(' ')));
console.log(lines.sort().join('\\n'));
client.destroy();
`;

test('the hooks of OpenTelemetry count waits and holds', () => {
  const made = project();
  cpSync(join(root, 'examples/node/opentelemetry-hooks.mjs'), join(made, 'opentelemetry-hooks.mjs'));
  writeFileSync(join(made, 'use.mjs'), TELEMETRY);
  assert.deepEqual(run(process.execPath, ['use.mjs', `redis://127.0.0.1:${port}`], made).trim().split('\n'), [
    'lock.hold.duration in_time 1',
    'lock.hold.duration too_late 1',
    'lock.lost  1',
    'lock.wait.duration LockRefused 1',
    'lock.wait.duration granted 2',
  ]);
});
