// A lock of redis-lock for node-redis.
//
//     await withLock(client, 'report', { leaseMs: 30_000, waitMs: 60_000 }, async (signal, lock) => {
//       lock.token; // the fencing token: give it to the storage that is written to
//       await fetch(url, { signal }); // the signal is aborted when the lock is lost
//     });
//
// or, where the runtime has it, `await using lock = await Lock.acquire(client, 'report', { leaseMs: 30_000 })`.
//
// It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost
// reply nor a time-out loses the place in line or leaves a lock behind; an aborted wait leaves the line. It renews the
// lease at a third of it. Where that fails, the lock is lost at nine tenths of the lease, counted from when the last
// renewal was sent. Work that keeps the event loop busy for so long is not stopped: it has to look at leftMs().
export * from './attempt.mjs';
export { Lock } from './lock.mjs';

import { Lock } from './lock.mjs';

/** Does the work under the lock; gives it back when the work has ended, in whatever way. What the work returns. */
export async function withLock(client, key, options, work) {
  const lock = await Lock.acquire(client, key, options);
  let result;
  try {
    result = await work(lock.signal, lock);
  } catch (error) {
    await lock.release().catch(() => {}); // the error of the work is the one to tell
    throw lock.signal.aborted && error?.name === 'AbortError' ? lock.signal.reason : error;
  }
  await lock.release();
  return result;
}
