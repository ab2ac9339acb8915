/**
 * Locks that a Redis or Valkey server hands over itself.
 *
 *     const locks = new Locks(client);
 *     await locks.lock('report', 30_000, { wait: 60_000 }).run(async (signal, held) => {
 *       held.token; // the fencing token: give it to the storage that is written to
 *     });
 */

export type { Key } from './checks.js';
export {
  LockError,
  LockBadArgumentError,
  LockDeadlockError,
  LockDeniedError,
  LockLostError,
  LockMisuseError,
  LockNoServerError,
  LockRefusedError,
  LockTimeoutError,
  LockUnavailableError,
  type LockErrorCode,
} from './errors.js';
// The names of version 1.0 stay.
export {
  LockBadArgumentError as LockBadArgument,
  LockDeadlockError as LockDeadlock,
  LockDeniedError as LockDenied,
  LockLostError as LockLost,
  LockMisuseError as LockMisuse,
  LockNoServerError as LockNoServer,
  LockRefusedError as LockRefused,
  LockTimeoutError as LockTimeout,
  LockUnavailableError as LockUnavailable,
} from './errors.js';
export { Held, type Predecessor } from './hold.js';
export { Leader, type Leadership } from './leader.js';
export { Lock, Locks, type IoredisClient, type NodeRedisClient, type RedisClient } from './locks.js';
export type { AcquireOptions, Hooks, LeaderHooks, LockOptions, ManagerOptions } from './options.js';
export type { LockTerms } from './terms.js';
