// A BullMQ worker with two slots: node bullmq.worker.mjs PORT [unlocked]

import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { Locks } from 'serverlock';
import { oneAtATime } from './bullmq.mjs';
import { say, work } from './work.mjs';

const [port, unlocked] = process.argv.slice(2);
const connection = { port: Number(port), maxRetriesPerRequest: null };
const locks = new Locks(new Redis(connection));

const bill = (job, held) => work({ begin: job.id, account: job.data.account, token: held?.token });
const locked = oneAtATime(locks, (job) => `account:${job.data.account}`, bill, { lease: 10_000, retryAfter: 100 });

const worker = new Worker('bills', unlocked ? bill : locked, {
  connection,
  concurrency: 2,
  // A job whose worker died runs again soon. On a busy machine, one whose worker lives may do so, too.
  lockDuration: 10_000,
  stalledInterval: 1000,
  maxStalledCount: 100,
});
worker.on('failed', (job, error) => say({ failed: job?.id, text: String(error) }));
await worker.waitUntilReady();
say({ ready: true });
