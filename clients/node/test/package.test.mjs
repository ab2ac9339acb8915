// The package as users get it: installed in an empty project, from its folder or packed, with types; its README runs.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
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
const run = (command, args, cwd) =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

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
    server.stdout.on('data', (data) => {
      log += data;
      if (log.includes('Ready to accept connections')) resolve();
    });
    server.on('exit', () => reject(new Error(log)));
  });
});

after(() => {
  server.removeAllListeners('exit');
  server.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** The package's folder, as in a fresh clone. */
function clone(to) {
  for (const name of ['package.json', 'README.md', 'LICENSE', 'build.mjs', 'tsconfig.json', 'src'])
    cpSync(join(home, name), join(to, name), { recursive: true });
  return to;
}

test('`npm install FOLDER` of a fresh clone installs the built package', () => {
  const made = mkdtempSync(join(folder, 'install-'));
  const [source, user] = [clone(join(made, 'clone/clients/node')), join(made, 'user')];
  mkdirSync(user);
  writeFileSync(join(user, 'package.json'), '{ "type": "module", "private": true }');
  run('npm', ['install', '--no-audit', '--no-fund', '--cache', join(made, 'cache'), source], user);
  const program =
    "const all = {}; for (const part of ['', '/redlock', '/node-cron', '/nestjs', '/opentelemetry']) Object.assign(all, await import('serverlock' + part)); console.log(Object.keys(all).join())";
  const said = run(process.execPath, ['--input-type=module', '-e', program], user);
  for (const name of [
    'Locks',
    'LockTimeoutError',
    'LockTimeout',
    'ResourceLockedError',
    'LockCoordinator',
    'OncePerTick',
    'telemetry',
  ])
    assert(said.includes(name), said);
  // A linked folder still finds the application's library.
  symlinkSync(join(modules, 'redis'), join(user, 'node_modules/redis'));
  const find =
    "console.log(typeof (await (await import('./node_modules/serverlock/dist/node-redis.js')).libraryOf()).createClient)";
  assert.equal(run(process.execPath, ['--input-type=module', '-e', find], user), 'function\n');
  for (const name of [
    'index.d.ts',
    'nestjs.d.ts',
    'node-cron.d.ts',
    'redlock.d.ts',
    'testing.d.ts',
    'lock.lua',
    'renewal-worker.js',
  ])
    assert(existsSync(join(user, 'node_modules/serverlock/dist', name)), name);
});

/** A project with nothing but the packed package and the client libraries. */
function project() {
  const made = mkdtempSync(join(folder, 'project-'));
  packed ??= pack();
  writeFileSync(join(made, 'package.json'), '{ "type": "module", "private": true }');
  mkdirSync(join(made, 'node_modules/serverlock'), { recursive: true });
  run('tar', ['-xzf', packed, '-C', join(made, 'node_modules/serverlock'), '--strip-components=1'], made);
  for (const name of ['redis', '@redis', 'ioredis', '@types', '@opentelemetry'])
    symlinkSync(join(modules, name), join(made, 'node_modules', name));
  return made;
}

let packed;
function pack() {
  const source = clone(join(folder, 'source'));
  symlinkSync(modules, join(source, 'node_modules'));
  const [packed] = JSON.parse(run('npm', ['pack', '--json', '--silent'], source));
  const names = packed.files.map(({ path }) => path);
  for (const name of ['README.md', 'LICENSE', 'dist/index.js', 'dist/index.d.ts', 'dist/lock.lua'])
    assert(names.includes(name), name);
  assert(!names.some((name) => !/^(dist\/.*|README.md|LICENSE|package.json)$/.test(name)), String(names));
  return join(source, packed.filename);
}

test("the README's examples run in an empty project", () => {
  const made = project();
  const blocks = [...readFileSync(join(home, 'README.md'), 'utf8').matchAll(/```js\n(.*?)```/gs)].map(
    ([, block]) => block,
  );
  assert.equal(blocks.length, 5);
  for (const block of blocks) {
    const example = block
      .replace('createClient({', `createClient({ url: 'redis://127.0.0.1:${port}',`)
      .replace('new Redis({', `new Redis({ port: ${port},`);
    assert.equal(example === block, block.includes('serverlock/testing')); // only that one needs no server
    writeFileSync(join(made, 'example.js'), example);
    assert.match(run(process.execPath, ['example.js'], made), /token \d+|held to the end: true|lost true\nunavailable/);
  }
});

test('its types catch wrong calls', () => {
  const made = project();
  const use = `import { createClient } from 'redis';
import { Redis } from 'ioredis';
import { createClientPool, createCluster, createSentinel } from 'redis';
import { Cluster } from 'ioredis';
import { type Compute, type FlightOptions, Held, Locks, LockError, LockLostError, LockTimeout, LockTimeoutError, Once, type HeldOnce, type LockErrorCode, type LockEvent, type LockOptions, type ManagerOptions, type OnceOptions, type Outcome } from 'serverlock';
import Redlock, { ExecutionError, type Lock } from 'serverlock/redlock';
import { type TelemetryOptions, telemetry } from 'serverlock/opentelemetry';
import { type Clock, Server } from 'serverlock/testing';
const memory = new Server();
const clock: Clock = memory.clock;
await clock.advance(1000);
const stand: Locks = memory.locks({ timeout: 5 });
memory.lose(await stand.lock('a', 1000).acquire());
const lock: Lock = await new Redlock([new Redis()], { retryCount: 3 }).acquire(['a'], 1000);
const name: string = await lock.redlock.using(['b'], 1000, async (signal) => signal.error?.message ?? ExecutionError.name);
console.log(name, (await lock.extend(500)).expiration);
const locks = [new Locks(createClient()), new Locks(new Redis()), new Locks(new Cluster([])), new Locks(await createClient({ RESP: 3 }).connect()),
  new Locks(createClientPool()), new Locks(createCluster({ rootNodes: [] })), new Locks(createSentinel({ name: 'a', sentinelRootNodes: [] }))];
const options: LockOptions = { wait: Infinity, owner: null, reentrant: true, onLost: (one) => console.log(one.token) };
const manager: ManagerOptions = { warn: console.warn, warnWithoutModule: false, hooks: { refused: (key, ms, error) => console.log(key, ms, error.code), granted: (key, ms, event: LockEvent) => console.log(event.held?.token) } };
const traced: TelemetryOptions = { keyAttribute: true };
new Locks(createClient(), { hooks: telemetry(traced) });
new Locks(createClient(), manager).lock('a', 1000, options).acquire({ signal: AbortSignal.timeout(5) }).catch((error: unknown) => {
  if (error instanceof LockTimeoutError) console.log((error satisfies LockTimeout).key, LockTimeout.name);
  else if (error instanceof LockError) {
    const code: LockErrorCode = error.code;
    console.log(code);
  }
});
const held: Held = await locks[0]!.lock('a', 1000, { wait: 5 }).acquire();
const sum: number = await locks[1]!.shared('a', 1000).run((signal: AbortSignal, held) => held.token + Number(signal.aborted));
console.log(held.left() + sum);
const schedule: OnceOptions = { lease: 5000, rerun: false, onLost: (one) => console.log(one.tick) };
const once: Once = locks[0]!.once('a', 60_000, schedule);
const ran: Outcome<number> = await once.run(async (signal: AbortSignal, held: HeldOnce) => held.tick + Number(held.recovered));
if (ran.outcome !== 'elsewhere') console.log(ran.value.toFixed());
const flight: FlightOptions = { wait: 5, owner: null, maxHold: 1000, signal: AbortSignal.timeout(5), onLost: (one) => console.log(one.token) };
const compute: Compute = async (signal: AbortSignal, held: Held) => new Uint8Array([Number(signal.aborted), held.token]);
const value: Buffer = await locks[0]!.singleFlight(Buffer.from('a'), 1000, compute, flight);
console.log(value.equals(await locks[0]!.singleFlight('a', 1000, () => 'text')));
`;
  const tsc = [
    join(modules, 'typescript/bin/tsc'),
    '--noEmit',
    '--strict',
    '--module',
    'nodenext',
    '--target',
    'es2022',
    '--skipLibCheck',
    'use.ts',
  ];
  const wrong = [
    "locks[0]!.lock('a', 1000, { wiat: 5 });",
    "locks[0]!.recover('a', 1000, { wait: 5 });",
    "locks[0]!.recover('a', 1000, { reentrant: true });",
    "locks[0]!.leader('a', 1000, { reentrant: true });",
    "locks[0]!.once('a', 60_000, { wait: 5 });",
    "locks[0]!.once('a');",
    "locks[0]!.singleFlight('a', 1000);",
    "locks[0]!.singleFlight('a', 1000, () => 5);",
    "locks[0]!.singleFlight('a', 1000, compute, { session: true });",
    'ran.value.toFixed();',
    'new Once();',
    'new Locks({});',
    'new Locks(new Map());',
    'new Locks(createClient().connect());',
    'new Held();',
    'held._engine;',
    'telemetry({ keys: true });',
    'locks[0]!._engine;',
    "new LockLostError('a', 'b').code === 'timeuot';",
  ];
  // The compiler reports marked lines that are correct.
  writeFileSync(join(made, 'use.ts'), use + wrong.map((line) => `// @ts-expect-error\n${line}\n`).join(''));
  run(process.execPath, tsc, made);
  writeFileSync(join(made, 'use.ts'), `${use}// @ts-expect-error\n${wrong[0].replace('wiat', 'wait')}\n`);
  assert.throws(
    () => run(process.execPath, tsc, made),
    (error) => /Unused '@ts-expect-error'/.test(error.stdout),
  );
});

test('its declarations show no internals, and say what each option does', () => {
  const made = project();
  const dist = join(made, 'node_modules/serverlock/dist');
  for (const name of readdirSync(dist).filter((name) => name.endsWith('.d.ts'))) {
    const text = readFileSync(join(dist, name), 'utf8');
    assert(!/^ *(readonly |get |static )?_\w|@internal|\bEngine\b|\bWire\b|client: object\b/m.test(text), name);
  }
  const options = readFileSync(join(dist, 'options.d.ts'), 'utf8');
  assert(options.includes('interface LockOptions'));
  for (const [option] of options.matchAll(/^ {4}\w+\??: .*;$/gm)) {
    const at = options.indexOf(option);
    assert(options.slice(0, at).trimEnd().endsWith('*/'), `${option} has no comment`);
  }
});

test("the repository's examples run", () => {
  const made = project();
  const text = readFileSync(join(root, 'examples/node/report.mjs'), 'utf8');
  const example = text
    .replace('createClient({', `createClient({ url: 'redis://127.0.0.1:${port}',`)
    .replace('step < 10', 'step < 1');
  assert.notEqual(example, text);
  writeFileSync(join(made, 'report.mjs'), example);
  assert.match(run(process.execPath, ['report.mjs'], made), /^working, token \d+$/m);
});
