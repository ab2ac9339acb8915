/**
 * Locks that a Redis or Valkey server hands over itself.
 *
 *     const locks = new Locks(client);
 *     await locks.lock('report', 30_000, { wait: 60_000 }).run(async (signal, held) => {
 *       held.token; // the fencing token: give it to the storage that is written to
 *     });
 */

export type { Hooks } from './engine.js';
export {
  LockBadArgument,
  LockDeadlock,
  LockDenied,
  LockError,
  LockLost,
  LockMisuse,
  LockNoServer,
  LockRefused,
  LockTimeout,
  LockUnavailable,
} from './errors.js';
export { Held, type Predecessor } from './hold.js';
export { Leader, type LeaderHooks, type Leadership } from './leader.js';
export { Lock, Locks, type AcquireOptions, type ManagerOptions } from './locks.js';
export type { Key, LockOptions } from './request.js';
