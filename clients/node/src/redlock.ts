/**
 * The interface of redlock 5, over LOCK.*: waiters queue, and the value of a lock is its fencing token.
 *
 *     import Redlock from 'serverlock/redlock'; // was: from 'redlock'
 *
 *     const redlock = new Redlock([client]);
 *     await redlock.using(['report'], 30_000, async (signal) => {
 *       if (signal.aborted) throw signal.error;
 *     });
 *
 * There is one client, and one attempt that waits for as long as all of redlock's retries would take.
 */

import { EventEmitter } from 'node:events';
import { now } from './clock.js';
import { LockBadArgumentError, LockError, LockRefusedError } from './errors.js';
import { Held, kept } from './hold.js';
import { Locks, type RedisClient } from './locks.js';
import type { Request } from './request.js';

export interface Settings {
  /** The fraction of the duration that `expiration` leaves out. */
  readonly driftFactor: number;
  /** An attempt waits for retryCount times retryDelay milliseconds; -1: forever. */
  readonly retryCount: number;
  readonly retryDelay: number;
  /** Ignored: nothing is resent after a delay. */
  readonly retryJitter: number;
  /** `using` renews when a third of the duration has passed; this is only checked. */
  readonly automaticExtensionThreshold: number;
}

export type ExecutionStats = {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<object>;
  readonly votesAgainst: Map<object, Error>;
};

export type ExecutionResult = { attempts: ReadonlyArray<Promise<ExecutionStats>>; start: number };

export type RedlockAbortSignal = AbortSignal & { error?: Error };

const DEFAULTS: Readonly<Settings> = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});

const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.';

/** Somebody else has one of the resources, or the lock is no longer held. */
export class ResourceLockedError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'ResourceLockedError';
  }
}

/** An operation failed. The one entry in `attempts` has the reason; `cause` is this package's error. */
export class ExecutionError extends Error {
  constructor(
    message: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    cause?: unknown,
  ) {
    super(message, { cause });
    this.name = 'ExecutionError';
  }
}

/** The grants of the locks that this process has acquired; a Lock that was built from its value has none yet. */
const holds = new WeakMap<Lock, Held>();

export class Lock {
  /** value: the fencing token. expiration: when the lock ends, as Date.now() counts; 0 once it has ended. */
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    readonly value: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    public expiration: number,
  ) {}

  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

/** One manager per client. */
const managers = new WeakMap<RedisClient, Locks>();

function managerOf(client: RedisClient): Locks {
  const known = managers.get(client) ?? new Locks(client);
  managers.set(client, known);
  return known;
}

export default class Redlock extends EventEmitter {
  readonly clients: Set<RedisClient>;
  readonly settings: Settings;
  readonly #client: RedisClient;
  readonly #locks: Locks;

  /** clients: one ioredis or node-redis client. scripts: none, because this class has none to replace. */
  constructor(clients: Iterable<RedisClient>, settings: Partial<Settings> = {}, scripts?: object) {
    super();
    this.on('error', () => undefined); // so that an error event without a user's listener does not crash
    this.clients = new Set(clients);
    const [client] = this.clients;
    if (!client) throw new Error('Redlock must be instantiated with at least one redis client.');
    if (this.clients.size > 1)
      throw new Error('serverlock/redlock takes one client: a lock is held by one server and its replicas.');
    if (scripts && Object.keys(scripts).length)
      throw new Error('serverlock/redlock has no scripts that could be changed.');
    this.settings = { ...DEFAULTS, ...numbersOf(settings) };
    this.#client = client;
    this.#locks = managerOf(client);
  }

  /** Ends its own connections, and calls the client's `quit`. */
  async quit(): Promise<void> {
    this.#locks.close();
    managers.delete(this.#client);
    await (this.#client as unknown as { quit(): Promise<unknown> }).quit();
  }

  /** Gets all of the resources or none. In a cluster, they must be in one slot. */
  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    const all = { ...this.settings, ...numbersOf(settings) };
    return this.#lockOf(await this.#acquire(resources, duration, all, true), resources, duration, all);
  }

  /** Releases the lock; rejects with an ExecutionError if it was no longer held. */
  async release(lock: Lock, _settings?: Partial<Settings>): Promise<ExecutionResult> {
    const start = Date.now();
    const held = this.#heldOf(lock);
    lock.expiration = 0;
    holds.delete(lock);
    return this.#translated(async () => {
      if (!held || !(await held.release())) throw gone(lock.resources, held?.lost);
      return { attempts: [this.#stats()], start };
    });
  }

  /** Sets a new duration, and resolves to a Lock that replaces this one. */
  async extend(existing: Lock, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    if (existing.expiration < Date.now()) throw new ExecutionError('Cannot extend an already-expired lock.', []);
    return this.#translated(async () => {
      const held = this.#heldOf(existing);
      if (!held) throw gone(existing.resources);
      await held.extend(duration);
      existing.expiration = 0;
      holds.delete(existing);
      return this.#lockOf(held, existing.resources, duration, { ...this.settings, ...numbersOf(settings) });
    });
  }

  /**
   * Runs the routine while the resources are locked and renewed. If the lock is lost, the signal is
   * aborted, with the error in `signal.error`.
   */
  using<T>(resources: string[], duration: number, routine: (signal: RedlockAbortSignal) => Promise<T>): Promise<T>;
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    settingsOrRoutine: Partial<Settings> | ((signal: RedlockAbortSignal) => Promise<T>),
    optionalRoutine?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T> {
    checkDuration(duration);
    const settings = {
      ...this.settings,
      ...(typeof settingsOrRoutine === 'function' ? {} : numbersOf(settingsOrRoutine)),
    };
    const routine = optionalRoutine ?? settingsOrRoutine;
    if (typeof routine !== 'function') throw new Error('INVARIANT: routine is not a function.');
    if (settings.automaticExtensionThreshold > duration - 100) {
      throw new Error(
        'A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.',
      );
    }
    const controller = new AbortController();
    const signal: RedlockAbortSignal = controller.signal;
    const held = await this.#acquire(resources, duration, settings, false, ({ lost }) => {
      signal.error = this.#failed(gone(resources, lost)) as Error;
      controller.abort(signal.error);
    });
    let result: T;
    try {
      result = await kept(held, () => routine(signal));
    } catch (error) {
      await held.release().catch(() => false);
      throw error;
    }
    await this.#translated(async () => {
      if (!(await held.release())) throw gone(resources, held.lost);
    });
    return result;
  }

  #acquire(
    resources: string[],
    duration: number,
    settings: Settings,
    timed: boolean,
    onLost?: (held: Held) => void,
  ): Promise<Held> {
    const { retryCount, retryDelay } = settings;
    const wait = retryCount === -1 ? Infinity : Math.max(0, retryCount * retryDelay);
    return this.#translated(() => {
      const request = this.#request(resources, duration, timed, { wait, ...(onLost && { onLost }) });
      return this.#locks._engine.acquire(request);
    });
  }

  #request(resources: string[], duration: number, timed: boolean, options = {}): Request {
    // No owner: other programs may expect the value to be a pure number.
    return this.#locks._request(resources, duration, { ...options, owner: null }, timed);
  }

  /** The hold for a lock whose value may come from elsewhere. undefined: the value is not a token from the server. */
  #heldOf(lock: Lock): Held | undefined {
    const known = holds.get(lock);
    if (known || !/^[1-9]\d{0,15}$/.test(lock.value)) return known;
    const engine = this.#locks._engine;
    const left = Math.max(1, lock.expiration - Date.now());
    const grant = {
      token: Number(lock.value),
      sent: now(),
      predecessor: null,
      form: engine.form,
      session: undefined,
    };
    return Held._of(engine, this.#request(lock.resources, left, true), grant, now());
  }

  #lockOf(held: Held, resources: string[], duration: number, { driftFactor }: Settings): Lock {
    const start = Date.now() - (now() - held._lease.sent);
    const drift = Math.round(driftFactor * duration) + 2;
    const lock = new Lock(this, resources, String(held.token), [this.#stats()], Math.floor(start + duration - drift));
    holds.set(lock, held);
    return lock;
  }

  /** Translates errors to redlock's. */
  async #translated<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw this.#failed(error);
    }
  }

  #failed(error: unknown): unknown {
    if (!(error instanceof LockError || error instanceof ResourceLockedError)) return error;
    // A refusal with a cause is a temporary server error that lasted too long.
    const isTaken = error instanceof LockRefusedError && error.cause === undefined;
    const vote = isTaken ? new ResourceLockedError(error.message, error) : error;
    this.emit('error', vote);
    const text = error instanceof LockBadArgumentError ? error.message : NO_QUORUM;
    return new ExecutionError(text, [this.#stats(vote)], error);
  }

  #stats(error?: Error): Promise<ExecutionStats> {
    return Promise.resolve({
      membershipSize: 1,
      quorumSize: 1,
      votesFor: new Set(error ? [] : [this.#client]),
      votesAgainst: new Map(error ? [[this.#client, error]] : []),
    });
  }
}

function gone(resources: string[], cause?: unknown): ResourceLockedError {
  return new ResourceLockedError(`The lock of ${resources.join(', ')} is no longer held.`, cause);
}

function checkDuration(duration: number): void {
  if (Math.floor(duration) !== duration) throw new Error('Duration must be an integer value in milliseconds.');
}

function numbersOf(settings: Partial<Settings>): Partial<Settings> {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => typeof value === 'number'));
}
