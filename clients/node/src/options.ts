/** What callers may set. */

import type { LockError, LockLostError } from './errors.js';
import type { Held, HeldOnce } from './hold.js';
import { LOCK_OPTIONS, type LockTerms } from './terms.js';

/** Options of a lock. Durations are milliseconds. */
export interface LockOptions extends LockTerms {
  /** Called once with the hold when it is lost; `held.signal` is aborted as well. */
  onLost?: (held: Held) => void;
}

/** Options of `recover`, which does not wait. Durations are milliseconds. */
export type RecoverOptions = Omit<LockOptions, 'wait' | 'reentrant'>;

/** Options of `once`. Durations are milliseconds. */
export interface OnceOptions extends Pick<LockTerms, 'owner' | 'replicas' | 'replicasWithin' | 'fsync' | 'maxHold'> {
  /**
   * How soon another process may run the tick if one dies. At most half of the period. Default: 10 s, or a quarter of
   * the period if that is shorter.
   */
  lease?: number;
  /** Whether a tick runs again if its process dies. If not, its lock is not renewed. Default: true. */
  rerun?: boolean;
  /** Called once with the hold when it is lost; `held.signal` is aborted as well. */
  onLost?: (held: HeldOnce) => void;
}

/** Options of `singleFlight`. Durations are milliseconds. */
export interface FlightOptions extends Pick<LockTerms, 'owner' | 'maxHold'> {
  /** How long to wait for the value, at least 1; Infinity: forever. Default: 60000. */
  wait?: number;
  /** Aborts the call, which rejects with the signal's reason. If `compute` is running, its signal is aborted. */
  signal?: AbortSignal;
  /** Called once with the hold when it is lost; `held.signal` is aborted as well. */
  onLost?: (held: Held) => void;
}

/** Options of an attempt. */
export interface AcquireOptions {
  /** Aborts the attempt, which rejects with the signal's reason and leaves nothing behind. */
  signal?: AbortSignal;
}

/** What a call of a hook is about. */
export interface LockEvent {
  /** The keys as text; a key that is not UTF-8 in hexadecimal, after 0x. */
  readonly keys: readonly string[];
  /** What asked for the lock: LOCK.ACQUIRE and the like, or the script's function. */
  readonly operation: string;
  /** The hold; undefined for an attempt that got none. */
  readonly held: Held | undefined;
}

/** Called with the key and milliseconds. They must not block. An exception from a hook becomes a Node warning. */
export interface Hooks {
  granted?(key: string, waited: number, event: LockEvent): void;
  refused?(key: string, waited: number, error: LockError, event: LockEvent): void;
  /** The caller's signal was aborted. */
  cancelled?(key: string, waited: number, event: LockEvent): void;
  /** An attempt of `singleFlight` got another holder's result in place of the lock. */
  result?(key: string, waited: number, event: LockEvent): void;
  lost?(key: string, held: number, error: LockLostError, event: LockEvent): void;
  released?(key: string, held: number, inTime: boolean, event: LockEvent): void;
}

/** Options of a manager. */
export interface ManagerOptions {
  /** How long a reply may take, in milliseconds. Default: 5000. */
  timeout?: number;
  /** Without the module, lock with a script, also in order of arrival; `session` needs the module. Default: true. */
  portable?: boolean;
  /** Warn once if the module is missing: through `warn`, or else through `process.emitWarning`. Default: true. */
  warnWithoutModule?: boolean;
  /**
   * Where locks are renewed. 'thread': in a worker thread, over a connection of its own, so that an event loop that is
   * blocked for longer than a lease keeps its locks. They then need `maxHold`. Leaders are renewed on the loop. Not for
   * clusters, pools and node-redis's sentinel. Default: 'loop'.
   */
  renewal?: 'loop' | 'thread';
  /** For metrics. */
  hooks?: Hooks;
  /** Where other warnings go, for example `console.warn`. Default: nowhere. */
  warn?: (text: string) => void;
}

/** Called alternately: elected, lost, elected, and so on. */
export interface LeaderHooks {
  /** Called with the token when this process becomes the leader. */
  onElected?: (token: number) => void;
  /** Called with the same token when it no longer is. */
  onLost?: (token: number) => void;
}

/** Options of a leader. Durations are milliseconds. */
export type LeaderOptions = Omit<LockOptions, 'onLost' | 'reentrant'> & LeaderHooks;

type Names<T> = Readonly<Record<keyof T, true>>;

/** @internal */
export const ACQUIRE_OPTIONS: Names<AcquireOptions> = { signal: true };
/** @internal */
export const HOOKS: Names<Hooks> = {
  granted: true,
  refused: true,
  cancelled: true,
  result: true,
  lost: true,
  released: true,
};
/** @internal */
export const MANAGER_OPTIONS: Names<ManagerOptions> = {
  timeout: true,
  portable: true,
  warnWithoutModule: true,
  renewal: true,
  hooks: true,
  warn: true,
};
/** @internal */
export const ONCE_OPTIONS: Names<OnceOptions> = {
  lease: true,
  rerun: true,
  owner: true,
  replicas: true,
  replicasWithin: true,
  fsync: true,
  maxHold: true,
  onLost: true,
};
/** @internal */
export const FLIGHT_OPTIONS: Names<FlightOptions> = {
  wait: true,
  owner: true,
  maxHold: true,
  onLost: true,
  signal: true,
};
const { reentrant: _, ...NOT_REENTRANT } = LOCK_OPTIONS;
const { wait: __, ...RECOVERED } = NOT_REENTRANT;
/** @internal */
export const RECOVER_OPTIONS: Names<RecoverOptions> = RECOVERED;
/** @internal */
export const LEADER_OPTIONS: Names<LeaderOptions> = { ...NOT_REENTRANT, onElected: true };
