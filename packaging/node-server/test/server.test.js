// The package as installed: the server starts with the module, ends, and says why it did not start.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmod, copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { findServer, modulePath, ServerFailed, ServerNotFound, startServer } from 'serverlock-server';
import { call } from './net.js';

async function withServer(options, run) {
  const server = await startServer(options);
  try {
    await run(server);
  } finally {
    await server.stop();
  }
}

/** Runs `run` with an environment variable, or without it. */
async function withVariable(name, value, run) {
  const before = process.env[name];
  const set = (to) => {
    if (to === undefined) delete process.env[name];
    else process.env[name] = to;
  };
  set(value);
  try {
    await run();
  } finally {
    set(before);
  }
}

test('a server has the module, and ends', async () => {
  const server = await startServer();
  assert.match(await call(server.url, 'LOCK.ACQUIRE', 'k', 'EX', '60', 'ID', '1'), /^:/);
  await server.stop();
  await assert.rejects(call(server.url, 'PING'), { code: 'ECONNREFUSED' });
  await server.stop();
});

test('options replace the defaults, and flush removes all locks', async () => {
  await withServer({ options: ['--databases', '3'] }, async (server) => {
    assert.match(await call(server.url, 'SELECT', '3'), /^-ERR/);
    await call(server.url, 'LOCK.ACQUIRE', 'k', 'EX', '60', 'ID', '1');
    assert.equal(await call(server.url, 'EXISTS', 'k'), ':1');
    await server.flush();
    assert.equal(await call(server.url, 'EXISTS', 'k'), ':0');
  });
});

test('a module that is not executable is loaded from a copy', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'serverlock-test-'));
  const module = join(folder, 'libredis_lock.so');
  await copyFile(modulePath(), module);
  await chmod(module, 0o644);
  await withVariable('REDIS_LOCK_MODULE', module, () =>
    withServer({}, async (server) => assert.match(await call(server.url, 'LOCK.HELP'), /^\*/)),
  );
  await rm(folder, { recursive: true });
});

test('a server that fails shows its log', async () => {
  await assert.rejects(startServer({ options: ['--there-is-no-such-option', '1'] }), (error) => {
    assert.ok(error instanceof ServerFailed);
    assert.match(error.message, /there-is-no-such-option/);
    return true;
  });
});

test('a port in use is an error if it was asked for', async () => {
  await withServer({}, ({ port }) => assert.rejects(startServer({ port }), /Address (already )?in use/));
});

test('a missing server is named', async () => {
  await withVariable('REDIS_SERVER', 'no-such-server', () => {
    assert.throws(() => findServer(), ServerNotFound);
    assert.throws(() => findServer(), /no-such-server/);
  });
  await withVariable('REDIS_SERVER', undefined, () =>
    withVariable('PATH', '', () => assert.throws(() => findServer(), /valkey-server/)),
  );
});

test('a server for musl gets the module for musl', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'serverlock-test-'));
  const program = join(folder, 'redis-server');
  await writeFile(program, '\x7fELF /lib/ld-musl-x86_64.so.1');
  const named = () => {
    try {
      return modulePath(program);
    } catch (error) {
      return error.message;
    }
  };
  // The archives that the package was built from may lack this one.
  assert.match(named(), /-unknown-linux-musl/);
  await rm(folder, { recursive: true });
});

test('the command prints the URL and runs the server until it is ended', async () => {
  const command = spawn('npx', ['--no-install', 'serverlock-server', '--databases', '3'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise((done) => command.once('close', done));
  let url;
  for await (const line of createInterface({ input: command.stdout })) {
    url ??= line;
    if (line.includes('Ready to accept connections')) break;
  }
  assert.match(await call(url, 'LOCK.HELP'), /^\*/);
  assert.match(await call(url, 'SELECT', '3'), /^-ERR/);
  // The reply may be lost with the connection.
  await call(url, 'SHUTDOWN', 'NOSAVE', 'NOW').catch(() => {});
  command.kill();
  await ended;
});
