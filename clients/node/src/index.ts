/**
 * Distributed locks for Redis and Valkey servers with the redis-lock module.
 *
 *     const locks = new Locks(client);
 *     await locks.lock('report', 30_000, { wait: 60_000 }).run(async (signal, held) => {
 *       held.token; // the fencing token: pass it to the storage with each write
 *     });
 */

export type { Key } from './checks.js';
// The names from version 1.0 remain.
export {
  LockBadArgumentError,
  LockBadArgumentError as LockBadArgument,
  LockDeadlockError,
  LockDeadlockError as LockDeadlock,
  LockDeniedError,
  LockDeniedError as LockDenied,
  LockError,
  type LockErrorCode,
  LockLostError,
  LockLostError as LockLost,
  LockMisuseError,
  LockMisuseError as LockMisuse,
  LockNoServerError,
  LockNoServerError as LockNoServer,
  LockRefusedError,
  LockRefusedError as LockRefused,
  LockTimeoutError,
  LockTimeoutError as LockTimeout,
  LockUnavailableError,
  LockUnavailableError as LockUnavailable,
} from './errors.js';
export { Held, type HeldOnce, type Predecessor } from './hold.js';
export { Leader, type Leadership } from './leader.js';
export { type IoredisClient, Lock, Locks, type NodeRedisClient, type RedisClient, Session } from './locks.js';
export { Once, type Outcome } from './once.js';
export type {
  AcquireOptions,
  FlightOptions,
  Hooks,
  LeaderHooks,
  LeaderOptions,
  LockEvent,
  LockOptions,
  ManagerOptions,
  OnceOptions,
  RecoverOptions,
} from './options.js';
export type { Compute } from './single-flight.js';
export type { LockTerms } from './terms.js';
