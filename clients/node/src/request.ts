/** A lock's arguments (checked before anything is sent), its queue, and its commands' words. */

import { booleanOf, countOf, functionOf, msOf, optionsOf } from './checks.js';
import { LockBadArgumentError } from './errors.js';
import { hostAndPid, isOwner } from './owner.js';
import type { Group } from './sessions.js';
import { LOCK_OPTIONS, type LockTerms } from './terms.js';
import type { Word } from './wire.js';

const TEN_YEARS = 315_360_000_000;
const LONGEST_NOTIFY = 3_600_000;
export const MOST_HOLDERS = 4096;

const isText = (key: Buffer): boolean => key.equals(Buffer.from(key.toString()));
const hexOf = (key: Buffer): string => `0x${key.toString('hex')}`;

export const shown = (keys: readonly Buffer[]): string =>
  keys.map((key) => (isText(key) ? `'${key}'` : hexOf(key))).join(', ');

/** The keys as text, without quotes. */
export const textsOf = (keys: readonly Buffer[]): string[] =>
  keys.map((key) => (isText(key) ? key.toString() : hexOf(key)));

export function keyOf(key: unknown): Buffer {
  const bytes = typeof key === 'string' ? Buffer.from(key) : key instanceof Uint8Array ? Buffer.from(key) : undefined;
  if (bytes === undefined) throw new LockBadArgumentError(String(key), 'key is neither a string nor bytes');
  if (bytes.length > 4096)
    throw new LockBadArgumentError(`${shown([bytes.subarray(0, 32)])}...`, 'key is longer than 4096 bytes');
  return bytes;
}

/** A list's keys. A string is not a list of its letters. */
export function keysOf(keys: unknown): Buffer[] {
  if (
    typeof keys === 'string' ||
    keys instanceof Uint8Array ||
    typeof (keys as Iterable<unknown> | null)?.[Symbol.iterator] !== 'function'
  ) {
    throw new LockBadArgumentError(String(keys), 'keys is not a list of keys');
  }
  return [...(keys as Iterable<unknown>)].map(keyOf);
}

/** A key's name as sent: as text if that is equivalent, because the libraries are slower with bytes. */
export function wordOf(bytes: Buffer): Word {
  const name = bytes.toString();
  return Buffer.from(name).equals(bytes) ? name : bytes;
}

/** The script's queue for a lock: in the same slot, and distinct from every other lock's. Some keys have none. */
export function queueOf(key: Buffer): Buffer | undefined {
  const name = key.toString('latin1');
  const behind = !/[{}]/.test(name) ? `:queue:{${name}}` : /^[^{]*\{[^}]+\}/.test(name) ? ':queue' : undefined;
  return behind === undefined ? undefined : Buffer.concat([key, Buffer.from(behind, 'latin1')]);
}

/** The key of a lock's result without the module, named like its queue. */
export function resultOf(key: Buffer): Buffer | undefined {
  const behind = queueOf(key)?.subarray(key.length + ':queue'.length);
  return behind && Buffer.concat([key, Buffer.from(':result'), behind]);
}

export class Request {
  readonly name: string;
  readonly lease: number;
  readonly wait: number;
  readonly options: LockTerms;
  readonly onLost: ((held: never) => unknown) | undefined;
  readonly reentrant: boolean;
  readonly atLeast: number;
  readonly maxHold: number;
  readonly replicas: number;
  readonly replicasWithin: number;
  readonly names: readonly Word[];
  readonly #head: Word[];
  readonly #lease: Word[];
  readonly #tail: Word[];
  /** The keys without the library's prefix. */
  readonly plain: readonly Buffer[];
  readonly #set: ReadonlySet<string>;
  /** Boxed, because there may be none; built when a script needs them. */
  #withQueues: { names: readonly Word[] | undefined } | undefined;

  constructor(
    readonly keys: readonly Buffer[],
    lease: unknown,
    options: LockTerms & { onLost?: (held: never) => unknown },
    readonly kind: readonly Word[] = [],
    readonly many = false,
    readonly recover = false,
    prefix = '',
    /** The lease is not renewed, and the lock counts as held for all of it. */
    readonly timed = false,
    /** The session locks that it shares connections with; undefined: those in the scopes around each attempt. */
    readonly group?: Group,
  ) {
    const name = shown(keys);
    if (keys.length === 0) throw new LockBadArgumentError('', 'keys is empty: allOf needs at least one');
    if (keys.length > 1024)
      throw new LockBadArgumentError(name.slice(0, 64), `keys are ${keys.length}, more than 1024`);
    this.#set = new Set(keys.map((key) => key.toString('latin1')));
    if (this.#set.size < keys.length) {
      throw new LockBadArgumentError(name, 'keys has the same key twice');
    }
    this.name = name;
    optionsOf(options, name, LOCK_OPTIONS);
    for (const flag of ['session', 'details', 'fsync'] as const) booleanOf(options[flag], flag, name, false);
    this.reentrant = booleanOf(options.reentrant, 'reentrant', name, false);
    functionOf(options.onLost, 'onLost', name);
    this.options = options;
    this.onLost = options.onLost;
    this.lease = msOf(lease, 'lease', name, 1);
    const or = (value: unknown, otherwise: number): unknown => (value === undefined ? otherwise : value);
    this.wait = msOf(or(options.wait, 0), 'wait', name, 0, Infinity);
    this.atLeast = msOf(or(options.atLeast, 0), 'atLeast', name, 0);
    this.maxHold = msOf(or(options.maxHold, Infinity), 'maxHold', name, 1, Infinity);
    this.replicas = countOf(or(options.replicas, 0), 'replicas', name, 0, 1000);
    this.replicasWithin = msOf(or(options.replicasWithin, 1000), 'replicasWithin', name, 1, 3_600_000);
    const { owner = hostAndPid() } = options;
    if (owner !== null && !isOwner(owner)) {
      throw new LockBadArgumentError(
        name,
        `owner is ${String(owner)}, not 1 to 128 visible ASCII characters without a space`,
      );
    }
    const front = Buffer.from(prefix);
    this.plain = keys;
    this.keys = prefix ? keys.map((key) => Buffer.concat([front, key])) : keys;
    this.names = this.keys.map(wordOf);
    this.#head = [this.command, ...this.#named()];
    this.#lease = ['PX', Math.round(this.lease)];
    this.#tail = [
      ...kind,
      ...(owner === null ? [] : ['OWNER', owner]),
      ...(options.session ? ['SESSION'] : []),
      ...(options.details && !many && !recover ? ['DETAILS'] : []),
    ];
  }

  /** The command that gets the lock. */
  get command(): string {
    return this.many ? 'LOCK.MACQUIRE' : this.recover ? 'LOCK.RECOVER' : 'LOCK.ACQUIRE';
  }

  /** The script's function that gets the lock. */
  get scripted(): string {
    return this.many ? 'lock_acquire_all' : this.recover ? 'lock_recover' : 'lock_acquire';
  }

  /** The key that determines the server. */
  get key(): Buffer {
    return this.keys[0] as Buffer;
  }

  /** Whether an attempt may get the result of the lock's holder instead of the lock. */
  get takesResult(): boolean {
    return false;
  }

  get isExclusive(): boolean {
    return this.kind.length === 0;
  }

  /** Whether one caller cannot hold both. */
  excludes(other: Request): boolean {
    if (!this.isExclusive && !other.isExclusive) return false;
    for (const key of other.#set) if (this.#set.has(key)) return true;
    return false;
  }

  isSameLock(other: Request): boolean {
    if (this.#set.size !== other.#set.size || this.kind.join() !== other.kind.join()) return false;
    for (const key of other.#set) if (!this.#set.has(key)) return false;
    return true;
  }

  /** Whether the grant belongs to a connection. */
  get needsConnection(): boolean {
    return Boolean(this.options.session || this.replicas || this.options.fsync);
  }

  /** Why a script cannot do it; undefined if it can. */
  get needsModule(): string | undefined {
    if (this.options.session) return 'session needs the module, which is not loaded';
    if (this.mayBeAlone || this.namesAndQueues) return undefined;
    const what = this.many ? 'several keys' : this.kind[0] === 'SHARED' ? 'shared' : 'limit';
    return `a key has a brace but no hash tag: there ${what} needs the module, which is not loaded`;
  }

  /** Whether a script can do it without its queue. */
  get mayBeAlone(): boolean {
    return this.isExclusive && !this.many;
  }

  /** The keys, then their queues; undefined if there are no queues for these names. */
  get namesAndQueues(): readonly Word[] | undefined {
    if (!this.#withQueues) {
      const queues = this.keys.map(queueOf).filter((queue) => queue !== undefined);
      const isWhole = queues.length === this.keys.length;
      this.#withQueues = { names: isWhole ? [...this.names, ...queues.map(wordOf)] : undefined };
    }
    return this.#withQueues.names;
  }

  #named(): Word[] {
    return this.many ? [this.keys.length, ...this.names] : [...this.names];
  }

  acquire(id: string, wait = 0, channel?: string): Word[] {
    return [...this.#head, ...this.terms(id, wait, channel)];
  }

  /** The words after the keys. */
  terms(id: string, wait = 0, channel?: string): Word[] {
    if (wait <= 0) return [...this.#lease, 'ID', id, ...this.#tail];
    const ms = Math.max(1, Math.round(Math.min(wait, channel === undefined ? TEN_YEARS : LONGEST_NOTIFY)));
    const notify = channel === undefined ? [] : ['NOTIFY', channel];
    return [...this.#lease, 'WAIT', ms, 'ID', id, ...notify, ...this.#tail];
  }

  extend(token: number, lease: number): Word[] {
    return [this.many ? 'LOCK.MEXTEND' : 'LOCK.EXTEND', ...this.#named(), token, 'PX', Math.max(1, Math.round(lease))];
  }

  /** `result`: for the attempts that take it. */
  release(token: number, result?: Buffer): Word[] {
    const words = [this.many ? 'LOCK.MRELEASE' : 'LOCK.RELEASE', ...this.#named(), token];
    return result ? [...words, 'RESULT', result] : words;
  }

  wasHeld(reply: unknown): boolean {
    return reply === (this.many ? this.keys.length : 1);
  }
}

/** Asks for a lock, or for the result with which its holder releases it. */
export class ResultRequest extends Request {
  override get takesResult(): boolean {
    return true;
  }

  override acquire(id: string, wait = 0, channel?: string): Word[] {
    const words = super.acquire(id, wait, channel);
    return wait > 0 ? [...words, 'RESULT'] : words;
  }
}
