/** The manager, and the description of a lock. */

import { booleanOf, countOf, functionOf, type Key, msOf, optionsOf, signalOf } from './checks.js';
import { Engine } from './engine.js';
import { LockBadArgumentError } from './errors.js';
import type { Held } from './hold.js';
import { ioredisWire, isIoredis } from './ioredis.js';
import { Leader } from './leader.js';
import { isNodeRedis, nodeRedisWire } from './node-redis.js';
import { Once, scheduleOf } from './once.js';
import {
  ACQUIRE_OPTIONS,
  type AcquireOptions,
  type FlightOptions,
  HOOKS,
  LEADER_OPTIONS,
  type LeaderOptions,
  type LockOptions,
  MANAGER_OPTIONS,
  type ManagerOptions,
  type OnceOptions,
  RECOVER_OPTIONS,
  type RecoverOptions,
} from './options.js';
import { clientOptionsOf } from './renewal-client.js';
import { keyOf, keysOf, MOST_HOLDERS, Request, shown } from './request.js';
import { Group } from './sessions.js';
import { type Compute, flightOf, fly } from './single-flight.js';
import { LOCK_OPTIONS } from './terms.js';
import type { Wire } from './wire.js';

type Method = (...args: never[]) => unknown;

/** A node-redis client, pool, cluster or sentinel. */
export interface NodeRedisClient {
  sendCommand: Method;
  close: Method;
  destroy: Method;
}

/** ioredis's Redis (also with Sentinel) or Cluster. */
export interface IoredisClient {
  call: Method;
  duplicate: Method;
  disconnect: Method;
  readonly status: string;
}

export type RedisClient = NodeRedisClient | IoredisClient;

function wireOf(client: unknown): Wire {
  if (typeof client !== 'object' || client === null) throw new LockBadArgumentError('', `client is ${String(client)}`);
  if (isNodeRedis(client)) return nodeRedisWire(client);
  if (isIoredis(client)) return ioredisWire(client);
  if (client instanceof Promise) throw new LockBadArgumentError('', 'client is a Promise: await it first');
  throw new LockBadArgumentError('', 'client is neither a client of node-redis nor one of ioredis');
}

/** Describes locks. */
abstract class Describing {
  /** One holder at a time. Durations are milliseconds. */
  lock(key: Key, lease: number, options: LockOptions = {}): Lock {
    return this._described([keyOf(key)], lease, options);
  }

  /** Any number of holders share it (readers); a holder of `lock` (a writer) excludes them. */
  shared(key: Key, lease: number, options: LockOptions = {}): Lock {
    return this._described([keyOf(key)], lease, options, ['SHARED']);
  }

  /** At most n holders at a time. */
  limit(key: Key, n: number, lease: number, options: LockOptions = {}): Lock {
    const keys = [keyOf(key)];
    return this._described(keys, lease, options, ['LIMIT', countOf(n, 'n', shown(keys), 1, MOST_HOLDERS)]);
  }

  /** All of the keys or none, under one token. While it waits, it holds none of them. */
  allOf(keys: Iterable<Key> & object, lease: number, options: LockOptions = {}): Lock {
    return this._described(keysOf(keys), lease, options, [], true);
  }

  /** Only a lock that its last holder never released; `predecessor` is that holder. Does not wait. */
  recover(key: Key, lease: number, options: RecoverOptions = {}): Lock {
    optionsOf(options, shown([keyOf(key)]), RECOVER_OPTIONS);
    return this._described([keyOf(key)], lease, options, [], false, true);
  }

  /** @internal */
  abstract _described(
    keys: Buffer[],
    lease: number,
    options: LockOptions,
    kind?: (string | number)[],
    many?: boolean,
    recover?: boolean,
  ): Lock;
}

/** The locks of one client. Create one manager for each Redis client in the application, and keep it. */
export class Locks extends Describing {
  readonly #engine: Engine;
  readonly #wire: Wire;

  /**
   * `client` is connected, or connects on its own. Two managers for the same client do not see each other's holds:
   * only the same manager notices that a lock is requested again within its own `run`.
   */
  constructor(client: RedisClient, options: ManagerOptions = {}) {
    super();
    optionsOf(options, '', MANAGER_OPTIONS);
    const hooks = options.hooks ?? {};
    optionsOf(hooks, '', HOOKS, 'hooks');
    for (const [name, hook] of Object.entries(hooks)) functionOf(hook, `hooks.${name}`, '');
    functionOf(options.warn, 'warn', '');
    const { renewal = 'loop' } = options;
    if (renewal !== 'loop' && renewal !== 'thread')
      throw new LockBadArgumentError('', `renewal is ${String(renewal)}, neither 'loop' nor 'thread'`);
    const settings = {
      timeout: msOf(options.timeout ?? 5000, 'timeout', '', 1),
      portable: booleanOf(options.portable, 'portable', '', true),
      warnWithoutModule: booleanOf(options.warnWithoutModule, 'warnWithoutModule', '', true),
      hooks,
      warn: options.warn,
    };
    this.#wire = this._wireOf(client);
    const forThread = renewal === 'thread' ? clientOptionsOf(client, this.#wire) : undefined;
    this.#engine = new Engine(this.#wire, settings, forThread);
  }

  /** @internal */
  _wireOf(client: unknown): Wire {
    return wireOf(client);
  }

  /**
   * Runs a body once for each tick, in one of the processes that ask: for cron jobs and schedulers. Durations are
   * milliseconds.
   *
   * Ticks begin at multiples of the period, which is at least 10 s, on the server's clock. A call is for the nearest
   * tick. The tick ends half a period after it begins, and nobody else runs it until then.
   */
  once(key: Key, period: number, options: OnceOptions = {}): Once {
    return this._once(key, period, options);
  }

  /** @internal For serverlock/nestjs: the ticks begin at multiples of the period plus the offset. */
  _once(key: Key, period: number, options: OnceOptions, offset = 0): Once {
    const schedule = scheduleOf(keyOf(key), period, options, this.#wire.prefix, offset);
    if (schedule.reruns) this.#engine.checkRenewal(schedule.request);
    return Once._of(this.#engine, schedule);
  }

  /**
   * Resolves to the value of the key, in a Buffer: one caller computes it, and all that wait, in all processes, get the
   * same bytes. Durations are milliseconds.
   *
   * The caller that gets the lock calls `compute`, which returns bytes, or a string that stands for its bytes in UTF-8.
   * Up to 64 KB (`lock.result-max`) are passed on to other processes; each computes a longer value itself. The lock is
   * renewed while `compute` runs. If its process dies, the next caller computes once the lease has ended. The callers
   * of one manager share one attempt. If `compute` throws, its caller gets the error, and the next caller computes. A
   * call that comes once `compute` has returned computes again.
   *
   * Rejects with LockTimeoutError if there is no value within `wait`; with LockMisuseError within `compute` of the same
   * key; with LockLostError if the lock is lost and `compute` throws what its signal is aborted with; with
   * LockBadArgumentError if `compute` returns something else; or with another LockError.
   */
  async singleFlight(key: Key, lease: number, compute: Compute, options: FlightOptions = {}): Promise<Buffer> {
    const request = flightOf(keyOf(key), lease, compute, options, this.#wire.prefix);
    this.#engine.checkRenewal(request);
    return fly(this.#engine, request, compute, options.signal);
  }

  /** Returns a Leader, which campaigns for the key from `start` until `stop`. */
  leader(key: Key, lease: number, options: LeaderOptions = {}): Leader {
    const name = shown([keyOf(key)]);
    optionsOf(options, name, LEADER_OPTIONS);
    const { onElected, onLost, ...rest } = options;
    functionOf(onElected, 'onElected', name);
    functionOf(onLost, 'onLost', name);
    const request = new Request([keyOf(key)], lease, { wait: 60_000, ...rest }, [], false, false, this.#wire.prefix);
    return Leader._of(this.#engine, request, { ...(onElected && { onElected }), ...(onLost && { onLost }) });
  }

  /**
   * Returns the session of one caller that holds several session locks without a scope. It needs no closing: its
   * connection closes with its last lock.
   */
  session(): Session {
    return Session._of(this.#engine, this.#wire.prefix);
  }

  /** @internal */
  _described(
    keys: Buffer[],
    lease: number,
    options: LockOptions,
    kind: (string | number)[] = [],
    many = false,
    recover = false,
  ): Lock {
    const request = new Request(keys, lease, options, kind, many, recover, this.#wire.prefix);
    this.#engine.checkRenewal(request);
    return Lock._of(this.#engine, request);
  }

  /** @internal For serverlock/redlock. */
  get _engine(): Engine {
    return this.#engine;
  }

  /** @internal For serverlock/redlock: one key, or several. */
  _request(keys: readonly Key[], lease: number, options: LockOptions, timed: boolean): Request {
    return new Request(keys.map(keyOf), lease, options, [], keys.length > 1, false, this.#wire.prefix, timed);
  }

  /** Closes the manager's own connections. Held locks are no longer renewed. */
  close(): void {
    this.#engine.close();
  }
}

/**
 * Describes locks with the `session` option that share a connection: those of one caller. So the server sees who holds
 * one lock and waits for another, and a wait that would close a cycle rejects with LockDeadlockError at once. In a
 * cluster, they share one connection for each server.
 *
 * If the connection ends, all of its locks are lost. One attempt at a time uses it; meanwhile, another one gets a
 * connection of its own.
 */
export class Session extends Describing {
  readonly #engine: Engine;
  readonly #prefix: string;
  readonly #group = new Group();

  private constructor(engine: Engine, prefix: string) {
    super();
    this.#engine = engine;
    this.#prefix = prefix;
  }

  /** @internal */
  static _of(engine: Engine, prefix: string): Session {
    return new Session(engine, prefix);
  }

  /** @internal */
  _described(
    keys: Buffer[],
    lease: number,
    options: LockOptions,
    kind: (string | number)[] = [],
    many = false,
    recover = false,
  ): Lock {
    optionsOf(options, shown(keys), LOCK_OPTIONS);
    const { session = true } = options;
    const more = { ...options, session };
    const request = new Request(keys, lease, more, kind, many, recover, this.#prefix, false, this.#group);
    if (!session) throw new LockBadArgumentError(request.name, 'session is false for a lock of a session');
    this.#engine.checkRenewal(request);
    return Lock._of(this.#engine, request);
  }
}

/** A description of a lock: it holds nothing, and any number of callers may use it. Each gets its own hold. */
export class Lock {
  readonly #engine: Engine;
  readonly #request: Request;

  private constructor(engine: Engine, request: Request) {
    this.#engine = engine;
    this.#request = request;
  }

  /** @internal */
  static _of(engine: Engine, request: Request): Lock {
    return new Lock(engine, request);
  }

  /** Gets the lock within `wait`; rejects with LockRefusedError, LockTimeoutError or another LockError. */
  acquire(options: AcquireOptions = {}): Promise<Held> {
    try {
      this.#check(options);
    } catch (error) {
      return Promise.reject(error as Error);
    }
    return this.#engine.acquire(this.#request, options.signal);
  }

  #check(options: AcquireOptions): void {
    optionsOf(options, this.#request.name, ACQUIRE_OPTIONS);
    signalOf(options.signal, this.#request.name);
  }

  /**
   * Runs the work while the lock is held, and returns its result. The signal is aborted when the lock is lost; then the
   * promise rejects with LockLostError once the work has ended.
   */
  async run<T>(work: (signal: AbortSignal, held: Held) => T | Promise<T>, options: AcquireOptions = {}): Promise<T> {
    if (typeof work !== 'function')
      throw new LockBadArgumentError(this.#request.name, `work is ${String(work)}, not a function`);
    this.#check(options);
    const [engine, request] = [this.#engine, this.#request];
    const outer = request.reentrant && engine.reentered(request);
    if (outer) {
      options.signal?.throwIfAborted();
      return engine.withinAgain(outer, () => work(outer.signal, outer));
    }
    const held = await engine.acquire(request, options.signal);
    return engine.within(
      held,
      () => work(held.signal, held),
      () => engine.release(held, true),
    );
  }
}
