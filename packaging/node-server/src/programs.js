// Where the installed server is, which of the package's modules it can load, and how it is called.
import { accessSync, closeSync, constants, existsSync, openSync, readSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const NAMES = ['redis-server', 'valkey-server'];
// For tests and laptops: only this machine connects, and nothing is kept.
const DEFAULTS = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
const PROCESSORS = { x64: 'x86_64', arm64: 'aarch64' };

/** There is no server to start, or no module for it. */
export class ServerNotFound extends Error {
  name = 'ServerNotFound';
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function inPath(name) {
  if (name.includes('/')) return isProgram(name) ? resolve(name) : undefined;
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  return folders.map((folder) => resolve(folder, name)).find(isProgram);
}

/** The path of `named`, of `REDIS_SERVER`, or of the redis-server or valkey-server in the PATH. */
export function findServer(named = process.env.REDIS_SERVER) {
  for (const name of named ? [named] : NAMES) {
    const found = inPath(name);
    if (found) return found;
  }
  if (named) throw new ServerNotFound(`there is no program ${named}`);
  throw new ServerNotFound(
    'neither redis-server nor valkey-server is in the PATH; REDIS_SERVER can name another program',
  );
}

/** Whether a program runs with musl: a dynamic program names its loader in its first bytes. */
function isForMusl(program) {
  const start = Buffer.alloc(8192);
  const file = openSync(program, 'r');
  try {
    readSync(file, start, 0, start.length, 0);
  } finally {
    closeSync(file);
  }
  return start.includes('ld-musl-');
}

/** The module that this server can load: the file of `REDIS_LOCK_MODULE`, or one in this package. */
export function modulePath(server = findServer()) {
  if (process.env.REDIS_LOCK_MODULE) return resolve(process.env.REDIS_LOCK_MODULE);
  const triple = `${PROCESSORS[process.arch] ?? process.arch}-unknown-linux-${isForMusl(server) ? 'musl' : 'gnu'}`;
  const path = fileURLToPath(new URL(`../modules/${triple}/libredis_lock.so`, import.meta.url));
  if (!existsSync(path)) throw new ServerNotFound(`this package has no module for ${triple}`);
  return path;
}

/** A port that was free a moment ago. */
export function freePort() {
  return new Promise((found, failed) => {
    const free = createServer().once('error', failed);
    free.listen(0, '127.0.0.1', () => {
      const { port } = free.address();
      free.close(() => found(port));
    });
  });
}

/** The server's arguments. `options` come last, so they replace the defaults. */
export function serverArguments({ module, port, folder, options = [] }) {
  return ['--port', String(port), '--dir', folder, ...DEFAULTS, '--loadmodule', module, ...options];
}
