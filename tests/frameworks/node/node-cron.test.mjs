// node-cron in three processes: each fire runs in one of them, and one of them dies in the middle of a run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { counts, eventsOf, startServer, until, Worker } from './support.mjs';

const WORKER = 'node-cron.worker.mjs';

/** Waits for that many fires more, and returns how often each of all fires began. */
async function fires(workers, more) {
  const before = counts(workers, 'end').size;
  await until(`${more} fires`, () => counts(workers, 'end').size >= before + more);
  return counts(workers, 'begin');
}

const twice = (begun) => [...begun].filter(([, count]) => count > 1);

test('each fire runs in one of three processes, with a fencing token', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t));
  assert.deepEqual(twice(await fires(workers, 6)), []);
  for (const { token } of eventsOf(workers, 'begin')) assert(token > 0);
});

test('without the coordinator, fires run more than once', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t), 'unlocked');
  assert.notDeepEqual(twice(await fires(workers, 6)), []);
});

test('when a process is killed in the middle of a run, the others run the next fires', async (t) => {
  const workers = await Worker.start(t, 3, WORKER, await startServer(t));
  const [victim, ...others] = workers;
  victim.hangNext();
  const { begin } = await until('it hangs', () => victim.find((event) => event.hangs));
  await victim.kill();
  await fires(others, 6);
  assert.deepEqual(twice(counts(workers, 'begin')), []);
  assert.equal(counts(workers, 'end').get(begin), undefined); // node-cron does not repeat a fire
});
