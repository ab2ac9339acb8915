// NestJS in three processes: each tick runs in one of them, and one of them dies in the middle of a run.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { compile } from './compiler.mjs';
import { counts, eventsOf, startServer, until, Worker } from './support.mjs';

const WORKER = 'built/nestjs.worker.js';

before(() => assert.equal(compile(['nestjs.worker.ts'], true), ''));

/** Waits for that many ticks more, and returns those that began more than once. */
async function repeated(workers, more) {
  const before = counts(workers, 'end').size;
  await until(`${more} ticks`, () => counts(workers, 'end').size >= before + more);
  return [...counts(workers, 'begin')].filter(([, count]) => count > 1).map(([tick]) => tick);
}

test('each tick runs in one of three processes', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t), 10);
  assert.deepEqual(await repeated(workers, 3), []);
  for (const { token } of eventsOf(workers, 'begin')) assert(token > 0);
});

test('without the decorator, ticks run in each process', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t), 10, 'unlocked');
  assert.notDeepEqual(await repeated(workers, 2), []);
});

test('when a process is killed in the middle of a tick, another runs that tick again', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t), 30);
  await repeated(workers, 1); // the next tick begins with its window, of which the lease is a small part
  for (const worker of workers) worker.hangNext();
  const victim = await until('one hangs', () => workers.find((worker) => worker.find((event) => event.hangs)));
  const { begin } = victim.find((event) => event.hangs);
  await victim.kill();
  const others = workers.filter((worker) => worker !== victim);
  const again = await until('another begins', () => eventsOf(others, 'begin').find((event) => event.hangs));
  assert.equal(again.begin, begin, 'the same tick');
  assert.equal(again.recovered, true);
});
