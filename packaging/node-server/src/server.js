// A server as a child of this process.
import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { chmod, copyFile, mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { findServer, freePort, modulePath, serverArguments } from './programs.js';

const READY = 'Ready to accept connections';
// glibc says "Address already in use", musl "Address in use".
const IN_USE = ' in use';
// Another program can take a port between the moment that it is free and the server's start.
const ATTEMPTS = 5;
const DEADLINE_MS = 60_000;
const LOG_LINES = 200;

/** The server did not start, or refused a command; the message says why. */
export class ServerFailed extends Error {
  name = 'ServerFailed';
}

class Server {
  #process;
  #folder;
  #lines = [];
  #ended;

  constructor(program, settings) {
    this.port = settings.port;
    this.url = `redis://127.0.0.1:${settings.port}`;
    this.#folder = settings.folder;
    this.#process = spawn(program, serverArguments(settings), { stdio: ['ignore', 'pipe', 'pipe'] });
    // Node waits for "close", after which the log is complete.
    this.#ended = new Promise((done) => {
      this.#process.once('close', done);
      this.#process.once('error', done);
    });
  }

  get log() {
    return this.#lines.join('\n');
  }

  /** Whether the server accepts connections; false once it has ended. */
  async isReady() {
    const ready = new Promise((done) => {
      for (const output of [this.#process.stdout, this.#process.stderr]) {
        createInterface({ input: output }).on('line', (line) => {
          this.#lines.push(line);
          if (this.#lines.length > LOG_LINES) this.#lines.shift();
          if (line.includes(READY)) done(true);
        });
      }
    });
    let timer;
    const late = new Promise((done) => {
      timer = setTimeout(done, DEADLINE_MS, false);
    });
    const isReady = await Promise.race([ready, late, this.#ended.then(() => false)]);
    clearTimeout(timer);
    return isReady;
  }

  /** Removes all keys and locks. */
  async flush() {
    const reply = await new Promise((done, failed) => {
      const connection = connect(this.port, '127.0.0.1', () => connection.write('*1\r\n$8\r\nFLUSHALL\r\n'));
      connection.once('end', () => failed(new ServerFailed('FLUSHALL had no reply')));
      // readline passes on the errors of its input.
      const lines = createInterface({ input: connection }).once('error', failed);
      lines.once('line', (line) => {
        connection.destroy();
        done(line);
      });
    });
    if (reply !== '+OK') throw new ServerFailed(`FLUSHALL replied ${reply}`);
  }

  /** Ends the server and removes its files. A second call does nothing. */
  async stop() {
    this.#process.kill();
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), DEADLINE_MS);
    await this.#ended;
    clearTimeout(timer);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Servers refuse a module that is not executable, and some installers drop that permission. */
async function executable(module, folder) {
  try {
    accessSync(module, constants.X_OK);
    return module;
  } catch {
    const copy = join(folder, basename(module));
    await copyFile(module, copy);
    await chmod(copy, 0o755);
    return copy;
  }
}

/** Starts a server with the module on a free port of 127.0.0.1. It runs until `stop()`, and keeps no data. */
export async function startServer({ server, port, options } = {}) {
  const program = findServer(server);
  const module = modulePath(program);
  for (let attempt = 1; ; attempt += 1) {
    const folder = await mkdtemp(join(tmpdir(), 'serverlock-'));
    const started = new Server(program, {
      module: await executable(module, folder),
      port: port ?? (await freePort()),
      folder,
      options,
    });
    if (await started.isReady()) return started;
    await started.stop();
    if (port !== undefined || attempt === ATTEMPTS || !started.log.includes(IN_USE)) {
      throw new ServerFailed(`the server did not start:\n${started.log}`);
    }
  }
}
