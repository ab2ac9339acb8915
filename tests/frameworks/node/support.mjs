// A test's own server and worker processes. Workers write one JSON object on each line of stdout.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

/** The folder of a checkout; the tests run in a project outside of it. */
export const repository = process.env.REPOSITORY;
const servers = await import(`file://${repository}/clients/node/test/servers.mjs`);

const PAGE = `${repository}/docs/FRAMEWORKS.md`;

/** The page's code in that language. */
export function blocksOfPage(language) {
  const blocks = readFileSync(PAGE, 'utf8').matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'));
  return [...blocks].map(([, block]) => block);
}

/** The workers of each test. They end before its server does. */
const workersOf = new WeakMap();

/** Starts a server with the module; returns its port. It ends with the test. */
export function startServer(t) {
  workersOf.set(t, []);
  const atEnd = (end) =>
    t.after(async () => {
      for (const worker of workersOf.get(t)) await worker.kill();
      await end();
    });
  return servers.startServer(atEnd, '--loadmodule', servers.module);
}

/** Much longer than anything takes on a busy machine. */
const DEADLINE = 300_000;

export async function until(what, holds) {
  const end = performance.now() + DEADLINE;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (performance.now() >= end) throw new Error(`not within ${DEADLINE} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A process with an application that uses the framework. */
export class Worker {
  events = [];
  killedAt;
  #process;

  constructor(t, ...words) {
    this.#process = spawn(process.execPath, words.map(String), { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface(this.#process.stdout).on('line', (line) => {
      if (line.startsWith('{')) this.events.push(JSON.parse(line));
    });
    workersOf.get(t).push(this);
  }

  /** As many workers with the same words, once they are ready. */
  static async start(t, count, ...words) {
    const workers = Array.from({ length: count }, () => new Worker(t, ...words));
    for (const worker of workers) await until('a worker is ready', () => worker.find((event) => event.ready));
    return workers;
  }

  find(matches) {
    return this.events.find(matches);
  }

  /** The worker's next run never ends. */
  hangNext() {
    this.#process.stdin.write('hang\n');
  }

  /** SIGKILL: nothing is cleaned up. Resolves once the process is gone. */
  async kill() {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, 'exit');
    this.killedAt = Date.now();
    this.#process.kill('SIGKILL');
    await ended;
  }
}

/** The events of all workers with this field. */
export const eventsOf = (workers, field) =>
  workers.flatMap((worker) => worker.events.filter((event) => event[field] !== undefined));

/** How often each value of the field occurs. */
export function counts(workers, field) {
  const found = new Map();
  for (const event of eventsOf(workers, field)) found.set(event[field], (found.get(event[field]) ?? 0) + 1);
  return found;
}
