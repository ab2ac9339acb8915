// A test's own servers: on free ports, in separate folders, ended by process id.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../..', import.meta.url));
export const module = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'release/libredis_lock.so');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what, holds) {
  for (const end = Date.now() + 20_000; !(await holds()); await sleep(5))
    if (Date.now() >= end) throw new Error(`not within 20 s: ${what}`);
}

/** The port if it is free, otherwise undefined; 0 means any port. */
async function listens(port) {
  const probe = createServer();
  const heard = await Promise.race([
    once(probe.listen(port, '127.0.0.1'), 'listening').then(() => true),
    once(probe, 'error').then(() => false),
  ]);
  if (!heard) return undefined;
  const found = probe.address().port;
  probe.close();
  await once(probe, 'close');
  return found;
}

export const freePort = () => listens(0);

/** A cluster's bus uses the port plus 10,000. Both are below the system's ephemeral ports. */
async function freePortWithBus() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 11_000);
    if ((await listens(port)) && (await listens(port + 10_000))) return port;
  }
}

/** Starts a server with these words; atEnd gets the function that ends it. Returns its port. */
export async function startServer(atEnd, ...words) {
  const folder = mkdtempSync(join(tmpdir(), 'serverlock-'));
  const port = words.includes('--cluster-enabled') ? await freePortWithBus() : await freePort();
  const server = spawn(
    process.env.REDIS_SERVER ?? 'redis-server',
    ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', folder, ...words].map(String),
  );
  let log = '';
  await new Promise((resolve, reject) => {
    server.stdout.on('data', (data) => {
      log += data;
      if (log.includes('Ready to accept connections')) resolve();
    });
    server.on('exit', () => reject(new Error(log)));
  });
  atEnd(async () => {
    server.removeAllListeners('exit');
    if (server.exitCode === null && server.kill('SIGKILL')) await once(server, 'exit');
    rmSync(folder, { recursive: true, force: true });
  });
  return port;
}

const SLOTS = 16384;

/** Three masters, each with a third of the slots, and no replicas. */
export class Cluster {
  constructor(ports, nodes) {
    this.ports = ports;
    this.nodes = nodes;
  }

  static async start(atEnd) {
    const { Redis } = createRequire(`${process.env.SERVERLOCK}/`)('ioredis');
    const words = ['--cluster-enabled', 'yes', '--cluster-node-timeout', 3000, '--loadmodule', module];
    const ports = await Promise.all([0, 1, 2].map(() => startServer(atEnd, ...words)));
    const nodes = ports.map((port) => new Redis({ port, enableReadyCheck: false }));
    atEnd(() => {
      for (const node of nodes) node.disconnect();
    });
    for (const [number, node] of nodes.entries()) {
      await node.call('CLUSTER', 'SET-CONFIG-EPOCH', number + 1);
      const [first, last] = [0, 1].map((more) => Math.floor(((number + more) * SLOTS) / 3));
      await node.call('CLUSTER', 'ADDSLOTS', ...Array.from({ length: last - first }, (_, slot) => first + slot));
      if (number > 0) await node.call('CLUSTER', 'MEET', '127.0.0.1', ports[0]);
    }
    const isWhole = async (node) => {
      const known = (await node.call('CLUSTER', 'SLOTS')).reduce((sum, [first, last]) => sum + last - first + 1, 0);
      return known === SLOTS && (await node.call('CLUSTER', 'INFO')).includes('cluster_state:ok');
    };
    for (const node of nodes) await until('all slots are known', () => isWhole(node));
    return new Cluster(ports, nodes);
  }

  slot(key) {
    return this.nodes[0].call('CLUSTER', 'KEYSLOT', key);
  }

  /** The connection to a key's master. */
  async owner(key) {
    const slot = await this.slot(key);
    const [, , [, port]] = (await this.nodes[0].call('CLUSTER', 'SLOTS')).find(
      ([first, last]) => first <= slot && slot <= last,
    );
    return this.nodes[this.ports.indexOf(port)];
  }

  /** One command, to the master of its key. */
  async call(command, key, ...words) {
    return (await this.owner(key)).call(command, key, ...words);
  }

  /** Moves a key's slot and its contents to another master. */
  async move(key) {
    const slot = await this.slot(key);
    const source = await this.owner(key);
    const at = (this.nodes.indexOf(source) + 1) % 3;
    const target = this.nodes[at];
    const [sourceId, targetId] = [await source.call('CLUSTER', 'MYID'), await target.call('CLUSTER', 'MYID')];
    await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', sourceId);
    await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', targetId);
    for (const name of await source.call('CLUSTER', 'GETKEYSINSLOT', slot, 100))
      await source.call('MIGRATE', '127.0.0.1', this.ports[at], name, 0, 5000);
    for (const node of [target, source, this.nodes[(at + 1) % 3]])
      await node.call('CLUSTER', 'SETSLOT', slot, 'NODE', targetId);
  }
}
