/**
 * Jobs for the same thing run one at a time, whichever worker gets them; all others run side by side:
 *
 *     new Worker('bills', oneAtATime(locks, (job) => `account:${job.data.account}`, work), { connection });
 *
 * A job that finds the lock taken leaves the worker free for others: BullMQ runs it again after `retryAfter`.
 */
import { DelayedError } from 'bullmq';
import { LockRefusedError } from 'serverlock';

/** `work` gets the job and the lock: call `held.check()` before each step, and pass `held.token` to the storage. */
export function oneAtATime(locks, keyOf, work, { lease = 30_000, retryAfter = 1000 } = {}) {
  return async (job, token) => {
    let hasBegun = false;
    const begin = (_signal, held) => {
      hasBegun = true;
      return work(job, held);
    };
    try {
      return await locks.lock(keyOf(job), lease).run(begin);
    } catch (error) {
      if (hasBegun || !(error instanceof LockRefusedError)) throw error;
      await job.moveToDelayed(Date.now() + retryAfter, token);
      throw new DelayedError();
    }
  };
}
