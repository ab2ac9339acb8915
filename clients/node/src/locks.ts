/** The manager, and the description of a lock. */

import { Engine, type Hooks } from './engine.js';
import { LockBadArgument } from './errors.js';
import type { Held } from './hold.js';
import { ioredisWire, isIoredis } from './ioredis.js';
import { Leader, type LeaderHooks } from './leader.js';
import { isNodeRedis, nodeRedisWire } from './node-redis.js';
import { countOf, functionOf, keyOf, keysOf, MOST_HOLDERS, msOf, optionsOf, Request, shown, signalOf, type Key, type LockOptions } from './request.js';
import type { Wire } from './wire.js';

export interface ManagerOptions {
  /** How long a reply may take, in milliseconds: 5000. */
  timeout?: number;
  /** Without the module, lock by script: true. */
  portable?: boolean;
  hooks?: Hooks;
  /** Where warnings go: nowhere. `console.warn` will do. */
  warn?: (text: string) => void;
}

export interface AcquireOptions {
  /** Gives the attempt up; it leaves nothing behind. */
  signal?: AbortSignal;
}

/** The locks of one client: make one for each client of the application, and keep it. */
export class Locks {
  readonly #engine: Engine;
  readonly #wire: Wire;

  /** client: a client, pool, cluster or sentinel of node-redis, or a Redis or Cluster of ioredis. */
  constructor(client: object, options: ManagerOptions = {}) {
    if (typeof client !== 'object' || client === null) throw new LockBadArgument('', `client is ${String(client)}`);
    optionsOf(options, '');
    for (const [name, hook] of Object.entries(options.hooks ?? {})) functionOf(hook, `hooks.${name}`, '');
    functionOf(options.warn, 'warn', '');
    if (isNodeRedis(client)) this.#wire = nodeRedisWire(client);
    else if (isIoredis(client)) this.#wire = ioredisWire(client);
    else throw new LockBadArgument('', 'client is neither a client of node-redis nor one of ioredis');
    this.#engine = new Engine(this.#wire, {
      timeout: msOf(options.timeout ?? 5000, 'timeout', '', 1),
      portable: options.portable ?? true,
      hooks: options.hooks ?? {},
      warn: options.warn ?? (() => undefined),
    });
  }

  /** One holder at a time. Durations are milliseconds. */
  lock(key: Key, lease: number, options: LockOptions = {}): Lock {
    return this.#made([keyOf(key)], lease, options);
  }

  /** Any number of holders that share it (readers); none beside a holder of `lock` (a writer). */
  shared(key: Key, lease: number, options: LockOptions = {}): Lock {
    return this.#made([keyOf(key)], lease, options, ['SHARED']);
  }

  /** At most n holders at a time. */
  limit(key: Key, n: number, lease: number, options: LockOptions = {}): Lock {
    const made = [keyOf(key)];
    return this.#made(made, lease, options, ['LIMIT', countOf(n, 'n', shown(made), 1, MOST_HOLDERS)]);
  }

  /** All of the keys or none, under one token. While it waits it holds none. */
  allOf(keys: Iterable<Key> & object, lease: number, options: LockOptions = {}): Lock {
    return this.#made(keysOf(keys), lease, options, [], true);
  }

  /** Only a lock that its last holder never released; `predecessor` says whose it was. It does not wait. */
  recover(key: Key, lease: number, options: LockOptions = {}): Lock {
    optionsOf(options, shown([keyOf(key)]));
    const { wait: _, ...rest } = options;
    return this.#made([keyOf(key)], lease, rest, [], false, true);
  }

  /** Campaigns for a key until it is stopped. */
  leader(key: Key, lease: number, options: Omit<LockOptions, 'onLost'> & LeaderHooks = {}): Leader {
    const name = shown([keyOf(key)]);
    optionsOf(options, name);
    const { onElected, onLost, ...rest } = options;
    functionOf(onElected, 'onElected', name);
    functionOf(onLost, 'onLost', name);
    const request = new Request([keyOf(key)], lease, { wait: 60_000, ...rest }, [], false, false, this.#wire.prefix);
    return new Leader(this.#engine, request, { ...(onElected && { onElected }), ...(onLost && { onLost }) });
  }

  #made(keys: Buffer[], lease: number, options: LockOptions, kind: (string | number)[] = [], many = false, recover = false): Lock {
    return new Lock(this.#engine, new Request(keys, lease, options, kind, many, recover, this.#wire.prefix));
  }

  /** @internal For serverlock/redlock. */
  get _engine(): Engine {
    return this.#engine;
  }

  /** @internal For serverlock/redlock: one key, or several. */
  _request(keys: readonly Key[], lease: number, options: LockOptions, timed: boolean): Request {
    return new Request(keys.map(keyOf), lease, options, [], keys.length > 1, false, this.#wire.prefix, timed);
  }

  /** Ends the connections of its own. Locks that are held are not renewed any more. */
  close(): void {
    this.#engine.close();
  }
}

/** A description of a lock: it holds nothing, and any number of callers may use it. Each gets a hold of its own. */
export class Lock {
  readonly #engine: Engine;
  readonly #request: Request;

  /** @internal */
  constructor(engine: Engine, request: Request) {
    this.#engine = engine;
    this.#request = request;
  }

  /** Gets the lock within `wait`; rejects with LockRefused, LockTimeout or another LockError. */
  acquire(options: AcquireOptions = {}): Promise<Held> {
    try {
      optionsOf(options, this.#request.name);
      signalOf(options.signal, this.#request.name);
    } catch (error) {
      return Promise.reject(error as Error);
    }
    return this.#engine.acquire(this.#request, options.signal);
  }

  /**
   * Runs the work while the lock is held, and gives what it gave. The signal is aborted when the lock is lost; then the
   * promise rejects with LockLost once the work has ended.
   */
  async run<T>(work: (signal: AbortSignal, held: Held) => T | Promise<T>, options: AcquireOptions = {}): Promise<T> {
    if (typeof work !== 'function') throw new LockBadArgument(this.#request.name, `work is ${String(work)}, not a function`);
    const held = await this.acquire(options);
    const scopes = this.#engine.scopes;
    const around = new Map(scopes.getStore());
    for (const key of this.#request.keys) around.set(key.toString('latin1'), this.#request.isExclusive);
    let result: T;
    try {
      result = await scopes.run(around, () => work(held.signal, held));
    } catch (error) {
      // The error of the work is the one to tell, unless it is our own signal's.
      if (!held._ended) await held.release().catch(() => false);
      const isOurs = held.signal.aborted && (error === held.signal.reason || (error as Error)?.name === 'AbortError');
      throw isOurs ? (held.lost ?? error) : error;
    }
    if (!held._ended && !(await held.release())) throw held.lost ?? held._over();
    return result;
  }
}
