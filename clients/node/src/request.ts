/** What a lock asks for, checked before anything is sent, and the words of its commands. */

import { LockBadArgument } from './errors.js';
import type { Held } from './hold.js';
import type { Word } from './wire.js';

/** What every lock takes besides its key and lease. Durations are milliseconds. */
export interface LockOptions {
  /** How long to stand in line; Infinity: for ever. Without it the attempt is refused at once. */
  wait?: number;
  /** A label for people, 1 to 128 visible ASCII characters. It grants nothing. */
  owner?: string;
  /** The lock ends with a connection of its own, one second after it. */
  session?: boolean;
  /** Fill `predecessor`. */
  details?: boolean;
  /** So many replicas must have the grant within `replicasWithin`, or it is given back. */
  replicas?: number;
  replicasWithin?: number;
  /** This server, and as many replicas, must have it on disk (WAITAOF). */
  fsync?: boolean;
  /** The lock is not free for others before that time, however soon it is released. */
  atLeast?: number;
  /** The lease is not renewed any more after that time. */
  maxHold?: number;
  /** Called with the hold when it is lost; `held.signal` is aborted as well. */
  onLost?: (held: Held) => void;
}

export type Key = string | Uint8Array;

const TEN_YEARS = 315_360_000_000;
const LONGEST_NOTIFY = 3_600_000;
export const MOST_HOLDERS = 4096;

export const shown = (keys: readonly Buffer[]): string =>
  keys.map((key) => (key.equals(Buffer.from(key.toString())) ? `'${key}'` : `0x${key.toString('hex')}`)).join(', ');

export function keyOf(key: unknown): Buffer {
  const made = typeof key === 'string' ? Buffer.from(key) : key instanceof Uint8Array ? Buffer.from(key) : undefined;
  if (made === undefined) throw new LockBadArgument(String(key), 'key is neither a string nor bytes');
  if (made.length > 4096) throw new LockBadArgument(`${shown([made.subarray(0, 32)])}...`, 'key is longer than 4096 bytes');
  return made;
}

/** The keys of a list. A text is no list of its letters. */
export function keysOf(keys: unknown): Buffer[] {
  if (typeof keys === 'string' || keys instanceof Uint8Array || typeof (keys as Iterable<unknown> | null)?.[Symbol.iterator] !== 'function') {
    throw new LockBadArgument(String(keys), 'keys is not a list of keys');
  }
  return [...(keys as Iterable<unknown>)].map(keyOf);
}

export function functionOf(value: unknown, name: string, key: string): void {
  if (value !== undefined && typeof value !== 'function') throw new LockBadArgument(key, `${name} is ${String(value)}, not a function`);
}

export function signalOf(value: unknown, key: string): void {
  const isSignal = typeof (value as AbortSignal | null | undefined)?.throwIfAborted === 'function';
  if (value !== undefined && !isSignal) throw new LockBadArgument(key, `signal is ${String(value)}, not an AbortSignal`);
}

/** Options are an object. Without types, an argument in the wrong place would be ignored. */
export function optionsOf(value: unknown, key: string): void {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof AbortSignal);
  if (!isObject) throw new LockBadArgument(key, `options is ${String(value)}, not an object with options`);
}

export function msOf(value: unknown, name: string, key: string, least: number, most = TEN_YEARS): number {
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw new LockBadArgument(key, `${name} is ${String(value)}, not between ${least} and ${most} milliseconds`);
  }
  return value;
}

export function countOf(value: unknown, name: string, key: string, least: number, most: number): number {
  if (!Number.isInteger(value) || (value as number) < least || (value as number) > most) {
    throw new LockBadArgument(key, `${name} is ${String(value)}, not a whole number between ${least} and ${most}`);
  }
  return value as number;
}

export class Request {
  readonly name: string;
  readonly lease: number;
  readonly wait: number;
  readonly options: LockOptions;
  readonly atLeast: number;
  readonly maxHold: number;
  readonly replicas: number;
  readonly replicasWithin: number;
  /** The keys as they are sent: as text where that is the same, because the libraries are slower with bytes. */
  readonly #names: readonly Word[];
  readonly #head: Word[];
  readonly #tail: Word[];

  constructor(
    readonly keys: readonly Buffer[],
    lease: unknown,
    options: LockOptions,
    readonly kind: readonly Word[] = [],
    readonly many = false,
    readonly recover = false,
    prefix = '',
    /** Nothing renews the lease, and all of it counts. */
    readonly timed = false,
  ) {
    const name = shown(keys);
    if (keys.length === 0) throw new LockBadArgument('', 'keys is empty: allOf needs at least one');
    if (keys.length > 1024) throw new LockBadArgument(name.slice(0, 64), `keys are ${keys.length}, more than 1024`);
    if (new Set(keys.map((key) => key.toString('latin1'))).size < keys.length) {
      throw new LockBadArgument(name, 'keys has the same key twice');
    }
    this.name = name;
    optionsOf(options, name);
    functionOf(options.onLost, 'onLost', name);
    this.options = options;
    this.lease = msOf(lease, 'lease', name, 1);
    const or = (value: unknown, otherwise: number): unknown => (value === undefined ? otherwise : value);
    this.wait = msOf(or(options.wait, 0), 'wait', name, 0, Infinity);
    this.atLeast = msOf(or(options.atLeast, 0), 'atLeast', name, 0);
    this.maxHold = msOf(or(options.maxHold, Infinity), 'maxHold', name, 1, Infinity);
    this.replicas = countOf(or(options.replicas, 0), 'replicas', name, 0, 1000);
    this.replicasWithin = msOf(or(options.replicasWithin, 1000), 'replicasWithin', name, 1, 3_600_000);
    const { owner } = options;
    if (owner !== undefined && !(typeof owner === 'string' && /^[!-~]{1,128}$/.test(owner))) {
      throw new LockBadArgument(name, `owner is ${String(owner)}, not 1 to 128 visible ASCII characters without a space`);
    }
    const front = Buffer.from(prefix);
    this.keys = prefix ? keys.map((key) => Buffer.concat([front, key])) : keys;
    this.#names = this.keys.map((key) => (Buffer.from(key.toString()).equals(key) ? key.toString() : key));
    const command = many ? 'LOCK.MACQUIRE' : recover ? 'LOCK.RECOVER' : 'LOCK.ACQUIRE';
    this.#head = [command, ...this.#named(), 'PX', Math.round(this.lease)];
    this.#tail = [
      ...kind,
      ...(owner === undefined ? [] : ['OWNER', owner]),
      ...(options.session ? ['SESSION'] : []),
      ...(options.details && !many && !recover ? ['DETAILS'] : []),
    ];
  }

  /** The key that decides which server it is. */
  get key(): Buffer {
    return this.keys[0] as Buffer;
  }

  get isExclusive(): boolean {
    return this.kind.length === 0;
  }

  /** Whether the grant belongs to a connection. */
  get needsLine(): boolean {
    return Boolean(this.options.session || this.replicas || this.options.fsync);
  }

  /** What of it no script can do. */
  get needsModule(): string | undefined {
    if (this.options.session) return 'session';
    if (this.kind.length) return this.kind[0] === 'SHARED' ? 'shared' : 'limit';
    return this.many ? 'several keys' : undefined;
  }

  #named(): Word[] {
    return this.many ? [this.keys.length, ...this.#names] : [...this.#names];
  }

  acquire(id: string, wait = 0, channel?: string): Word[] {
    if (wait <= 0) return [...this.#head, 'ID', id, ...this.#tail];
    const ms = Math.max(1, Math.round(Math.min(wait, channel === undefined ? TEN_YEARS : LONGEST_NOTIFY)));
    const notify = channel === undefined ? [] : ['NOTIFY', channel];
    return [...this.#head, 'WAIT', ms, 'ID', id, ...notify, ...this.#tail];
  }

  extend(token: number, lease: number): Word[] {
    return [this.many ? 'LOCK.MEXTEND' : 'LOCK.EXTEND', ...this.#named(), token, 'PX', Math.max(1, Math.round(lease))];
  }

  release(token: number): Word[] {
    return [this.many ? 'LOCK.MRELEASE' : 'LOCK.RELEASE', ...this.#named(), token];
  }

  wasHeld(reply: unknown): boolean {
    return reply === (this.many ? this.keys.length : 1);
  }
}
