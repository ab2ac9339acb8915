// The BullMQ example in three workers: jobs of one account never overlap, and one worker dies in the middle of a job.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { Queue } from 'bullmq';
import { blocksOfPage, counts, eventsOf, startServer, until, Worker } from './support.mjs';

const WORKER = 'bullmq.worker.mjs';
const JOBS = 12;

/** Starts three workers, and adds jobs of two accounts once `prepare` has returned. */
async function start(t, words = [], prepare = () => undefined) {
  const port = await startServer(t);
  const queue = new Queue('bills', { connection: { port } });
  t.after(() => queue.close());
  const workers = await Worker.start(t, 3, WORKER, port, ...words);
  prepare(workers);
  const jobs = Array.from({ length: JOBS }, (_, number) => ({ name: 'bill', data: { account: number % 2 } }));
  await queue.addBulk(jobs);
  return workers;
}

const isDone = (workers) => until('all jobs are done', () => counts(workers, 'end').size === JOBS);

/** Jobs that began while another of the same account was running, as the workers' events show it. */
function overlaps(workers) {
  const runs = workers.flatMap(({ events, killedAt = Infinity }) =>
    events
      .filter((event) => event.begin !== undefined)
      .map(({ begin, account, at }) => {
        const end = events.find((event) => event.end === begin && event.at >= at);
        return { account, from: at, to: end?.at ?? killedAt };
      }),
  );
  return runs.filter((run) =>
    runs.some(
      (other) => other !== run && other.account === run.account && other.from <= run.from && run.from < other.to,
    ),
  );
}

test('jobs of one account run one at a time', async (t) => {
  const workers = await start(t);
  await isDone(workers);
  assert.deepEqual(overlaps(workers), []);
  assert.deepEqual(eventsOf(workers, 'failed'), []);
});

test('without the lock, they overlap', async (t) => {
  const workers = await start(t, ['unlocked']);
  await isDone(workers);
  assert.notDeepEqual(overlaps(workers), []);
});

test('when a worker is killed in the middle of a job, another runs the job, and the rest', async (t) => {
  const workers = await start(t, [], ([first]) => first.hangNext());
  const [victim, ...others] = workers;
  const { begin } = await until('it hangs', () => victim.find((event) => event.hangs));
  await victim.kill();
  await isDone(workers);
  assert(counts(others, 'end').has(begin), 'the job of the worker that died');
  assert.deepEqual(overlaps(workers), []);
});

test("the page's example runs", async (t) => {
  const port = await startServer(t);
  const [block] = blocksOfPage('js').filter((text) => text.includes('bullmq.mjs'));
  const example = block
    .replace('maxRetriesPerRequest: null', `port: ${port}, $&`)
    .replace('new Redis({', `$& port: ${port},`)
    .replace('console.log', 'say')
    .concat("function say(...words) { console.log(JSON.stringify({ said: words.join(' ') })); }\n");
  writeFileSync('page-bullmq.mjs', example);
  const worker = new Worker(t, 'page-bullmq.mjs');
  const queue = new Queue('bills', { connection: { port } });
  t.after(() => queue.close());
  await queue.add('bill', { account: 7 });
  const { said } = await until('the job runs', () => worker.find((event) => event.said));
  assert.match(said, /^working for 7 token \d+$/);
});
