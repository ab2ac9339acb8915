/** What callers may set, and the checks of it. Without types, a wrong name or value would be ignored. */

import { LockBadArgumentError, type LockError, type LockLostError } from './errors.js';
import type { Held } from './hold.js';

/** The name of a lock: text, or bytes. */
export type Key = string | Uint8Array;

/** Options of a lock. Durations are milliseconds. */
export interface LockOptions {
  /** How long to wait in the queue; Infinity: for ever. Default: 0, the attempt is refused at once. */
  wait?: number;
  /** A label for people, 1 to 128 visible ASCII characters. It grants nothing. Default: none. */
  owner?: string;
  /** The lock ends with a connection of its own, one second after it. Needs the module. Default: false. */
  session?: boolean;
  /** Fill `held.predecessor`. Default: false. */
  details?: boolean;
  /** So many replicas must have the grant within `replicasWithin`, or it is given back. Default: 0. */
  replicas?: number;
  /** Default: 1000. */
  replicasWithin?: number;
  /** This server, and as many replicas as `replicas` says, must have the grant on disk (WAITAOF). Default: false. */
  fsync?: boolean;
  /** The lock is not free for others before that time, however soon it is released. Default: 0. */
  atLeast?: number;
  /** The lease is not renewed any more after that time. Default: Infinity. */
  maxHold?: number;
  /** Called once with the hold when it is lost; `held.signal` is aborted as well. */
  onLost?: (held: Held) => void;
}

/** Options of an attempt. */
export interface AcquireOptions {
  /** Gives the attempt up: it rejects with the signal's reason, and leaves nothing behind. */
  signal?: AbortSignal;
}

/** Called with the key, and milliseconds. They must not block. What they throw becomes a warning of Node. */
export interface Hooks {
  granted?(key: string, waited: number): void;
  refused?(key: string, waited: number, error: LockError): void;
  lost?(key: string, held: number, error: LockLostError): void;
  released?(key: string, held: number, inTime: boolean): void;
}

/** Options of a manager. */
export interface ManagerOptions {
  /** How long a reply may take, in milliseconds. Default: 5000. */
  timeout?: number;
  /** Without the module, lock by script. Default: true. */
  portable?: boolean;
  /** Warn once if the module is missing: by `warn`, or else by `process.emitWarning`. Default: true. */
  warnWithoutModule?: boolean;
  /** For metrics. */
  hooks?: Hooks;
  /** Where other warnings go, for example `console.warn`. Default: nowhere. */
  warn?: (text: string) => void;
}

/** Called in turns: elected, lost, elected, and so on. */
export interface LeaderHooks {
  /** Called with the token when this process leads. */
  onElected?: (token: number) => void;
  /** Called with the same token when it does not any more. */
  onLost?: (token: number) => void;
}

type Names<T> = Readonly<Record<keyof T, true>>;

/** @internal */
export const LOCK_OPTIONS: Names<LockOptions> = {
  wait: true,
  owner: true,
  session: true,
  details: true,
  replicas: true,
  replicasWithin: true,
  fsync: true,
  atLeast: true,
  maxHold: true,
  onLost: true,
};
/** @internal */
export const ACQUIRE_OPTIONS: Names<AcquireOptions> = { signal: true };
/** @internal */
export const HOOKS: Names<Hooks> = { granted: true, refused: true, lost: true, released: true };
/** @internal */
export const MANAGER_OPTIONS: Names<ManagerOptions> = { timeout: true, portable: true, warnWithoutModule: true, hooks: true, warn: true };
/** @internal */
export const LEADER_OPTIONS: Names<LockOptions & LeaderHooks> = { ...LOCK_OPTIONS, onElected: true };

/** @internal Checks that it is an object with no other names than these. `what` is what the error calls it. */
export function optionsOf(value: unknown, key: string, names: Readonly<Record<string, true>>, what = 'options'): void {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof AbortSignal);
  if (!isObject) throw new LockBadArgumentError(key, `${what} is ${String(value)}, not an object with options`);
  for (const name in value) {
    if (!Object.hasOwn(names, name)) {
      throw new LockBadArgumentError(key, `${what} has no '${name}', only ${Object.keys(names).join(', ')}`);
    }
  }
}

/** @internal */
export function functionOf(value: unknown, name: string, key: string): void {
  if (value !== undefined && typeof value !== 'function') throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a function`);
}

/** @internal */
export function booleanOf(value: unknown, name: string, key: string, otherwise: boolean): boolean {
  if (value !== undefined && typeof value !== 'boolean') throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a boolean`);
  return value ?? otherwise;
}

/** @internal */
export function signalOf(value: unknown, key: string): void {
  const isSignal = typeof (value as AbortSignal | null | undefined)?.throwIfAborted === 'function';
  if (value !== undefined && !isSignal) throw new LockBadArgumentError(key, `signal is ${String(value)}, not an AbortSignal`);
}

const TEN_YEARS = 315_360_000_000;

/** @internal Milliseconds. */
export function msOf(value: unknown, name: string, key: string, least: number, most = TEN_YEARS): number {
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not between ${least} and ${most} milliseconds`);
  }
  return value;
}

/** @internal A whole number. */
export function countOf(value: unknown, name: string, key: string, least: number, most: number): number {
  if (!Number.isInteger(value) || (value as number) < least || (value as number) > most) {
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a whole number between ${least} and ${most}`);
  }
  return value as number;
}
