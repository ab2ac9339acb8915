// The wait for a lock: in pieces, so that a wait longer than the time-out of a reply keeps its place in line.
import { setTimeout as sleep } from 'node:timers/promises';
import { LockRefused, LockUnsupported, mayPass } from './attempt.mjs';

const now = () => performance.now();

/** When the command was sent that got the lock. Throws LockRefused; or, when `signal` is aborted, its reason. */
export async function acquire(channel, attempt, { waitMs, timeoutMs, leaseMs, signal }) {
  const stop = () => channel.disconnect();
  signal?.addEventListener('abort', stop);
  try {
    const sent = await wait(channel, attempt, { waitMs, timeoutMs, signal });
    if (now() < sent + leaseMs / 3) return sent;
    // The grant may be as old as the call: its lease begins anew.
    const again = now();
    if ((await channel.exchange('EXTEND')) !== 1) throw attempt.lost('it was over before it could be used');
    return again;
  } catch (error) {
    channel.disconnect();
    if (!(error instanceof LockRefused || error instanceof LockUnsupported)) {
      // It may stand in line, or have been granted. If this fails: the wait ended with its connection, the lock ends
      // with its lease.
      await channel.exchange('CANCEL').catch(() => {});
      channel.disconnect();
    }
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

async function wait(channel, attempt, { waitMs, timeoutMs, signal }) {
  const end = now() + waitMs;
  for (let failed = false; ; ) {
    signal?.throwIfAborted();
    const sent = now();
    const piece = Math.min(Math.max(end - sent, 0), timeoutMs * 0.6);
    let pause = 50;
    try {
      const granted = (await channel.exchange('ACQUIRE', piece)) !== null;
      signal?.throwIfAborted();
      if (granted) return sent;
      // No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
      if ((!attempt.isPlain && now() < sent + piece - 50) || now() >= end) throw attempt.refused();
      pause = attempt.isPlain ? 50 + Math.random() * 100 : 0;
    } catch (error) {
      signal?.throwIfAborted();
      if (!mayPass(error) || (failed && now() >= end)) throw error;
      failed = true;
      channel.disconnect();
    }
    await sleep(pause);
  }
}
