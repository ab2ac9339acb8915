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
  for (const name of ['redis', '@redis', 'ioredis', '@types']) symlinkSync(join(modules, name), join(made, 'node_modules', name));
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

test('the script is that of the other clients', () => {
  assert.deepEqual(readFileSync(join(home, 'src/lock.lua')), readFileSync(join(root, 'clients/python/src/serverlock/lock.lua')));
});
