/** One grant, as its holder sees it: how long it is valid by the holder's own clock, and whether it was lost. */

import { type Key, msOf } from './checks.js';
import type { Clock } from './clock.js';
import { LockLostError } from './errors.js';
import type { Form } from './form.js';
import { InFlight } from './in-flight.js';
import { Lease, TAKEN } from './lease.js';
import type { Request } from './request.js';
import type { SessionConnection } from './sessions.js';
import type { Wire } from './wire.js';

/** A holder that never released the lock: its work may be half done. */
export interface Predecessor {
  /** How long ago its lease ended, in milliseconds. */
  overdue: number;
  /** Its fencing token, if the key shows it. */
  token: number | null;
  /** Its label, if it had one. */
  owner: string | null;
}

/** @internal From token, overdue-ms, previous token, previous owner. null: the lock was free. */
export function predecessor(details: unknown[]): Predecessor | null {
  const [, overdue, token, owner] = details;
  if (overdue === null || overdue === undefined) return null;
  return {
    overdue: Number(overdue),
    token: (token as number | null) ?? null,
    owner: owner === null || owner === undefined ? null : String(owner),
  };
}

/** @internal */
export interface Grant {
  token: number;
  /** When its request was sent. */
  sent: number;
  predecessor: Predecessor | null;
  form: Form;
  session: SessionConnection | undefined;
}

/** @internal What a hold's methods need from the manager. */
export interface Keeper {
  readonly wire: Wire;
  readonly clock: Clock;
  release(held: Held): Promise<boolean>;
  extend(held: Held, lease: number): Promise<void>;
  verify(held: Held): Promise<number>;
  fenced(held: Held, words: (string | Uint8Array | number)[]): Promise<unknown>;
  /** Called once, when the hold is lost. */
  lost(held: Held, error: LockLostError): void;
}

/** Work that waits only for its hold's signal is garbage, and so is the hold, unless something refers to the hold. */
const KEPT = new Set<Held>();

/** @internal Refers to a hold while work that must be notified of its loss is running. */
export async function kept<T>(held: Held, work: () => T | Promise<T>): Promise<T> {
  KEPT.add(held);
  try {
    return await work();
  } finally {
    KEPT.delete(held);
  }
}

/** A held lock, until it is released or lost. `token` is the fencing token. */
export class Held {
  /** The fencing token: it grows with each grant. Pass it to the storage with each write. */
  readonly token: number;
  /** With `details` and from `recover`: the previous holder, if it never released the lock. */
  readonly predecessor: Predecessor | null;
  /** How long it took to get the lock, in milliseconds. */
  readonly waited: number;

  /** @internal */ readonly _keeper: Keeper;
  /** @internal */ readonly _request: Request;
  /** @internal */ readonly _granted: number;
  /** @internal */ _lease: Lease;
  /** @internal Calls of `acquire` that have not been followed by a `release`. */ _entries = 1;
  /** @internal Whether its caller may get it again: not that of `once`. */ _isReentrant = true;
  /** @internal */ _ended = false;
  /** @internal */ _gone = false;
  /** @internal */ _renewing = false;
  /** @internal Whether the loop renews it, and not a thread. */ _isOnLoop = true;
  /** @internal */ _entry = 0;
  /** @internal */ _form: Form;
  /** @internal */ _session: SessionConnection | undefined;
  /** @internal What its release passes on to those that wait for it. */ _result: Buffer | undefined;
  #lost: LockLostError | undefined;
  #inFlight: InFlight | undefined;
  /** Created on demand, because one controller costs more than the rest of a hold. */
  #abort: AbortController | undefined;

  private constructor(keeper: Keeper, request: Request, grant: Grant, began: number) {
    this._keeper = keeper;
    this._request = request;
    this._granted = keeper.clock.now();
    this.token = grant.token;
    this.predecessor = grant.predecessor;
    this.waited = this._granted - began;
    this._lease = new Lease(grant.sent, request.lease, request.timed ? 1 : 0.9);
    this._form = grant.form;
    this._session = grant.session;
  }

  /** @internal */
  static _of(keeper: Keeper, request: Request, grant: Grant, began: number): Held {
    return new Held(keeper, request, grant, began);
  }

  /** The key, or the keys, as messages show them. */
  get key(): string {
    return this._request.name;
  }

  /** Why the lock is lost; undefined while it is held, or if it was released in time. */
  get lost(): LockLostError | undefined {
    if (!this.#lost && !this._ended) {
      if (this._lease.isGone) this._lose(TAKEN, true);
      else if (this._keeper.clock.now() >= this._lease.lostAt) this._lose('its lease was not renewed in time');
    }
    return this.#lost;
  }

  /** Aborted when the lock is lost; the reason is the LockLostError. */
  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.lost) this.#abort.abort(this.lost);
    }
    return this.#abort.signal;
  }

  /** Whether the lock is certain to be held. */
  get isHeld(): boolean {
    return this.lost === undefined && !this._ended;
  }

  /** The milliseconds for which the lock is certain to be held if no renewal succeeds; 0 if it is lost or released. */
  left(): number {
    return this.isHeld ? Math.max(0, this._lease.lostAt - this._keeper.clock.now()) : 0;
  }

  /** Throws LockLostError unless the lock is certain to be held. Sends nothing: call it before each step of work. */
  check(): void {
    const lost = this.lost;
    if (lost) throw lost;
    if (this._ended) throw new LockLostError(this.key, 'it was released');
  }

  /**
   * Releases the lock. Resolves to whether it was held to the end. If the server does not answer, the release continues
   * in the background. A second call rejects with LockMisuseError.
   *
   * With `reentrant`, each `acquire` needs a `release`; one that is not the last resolves to whether the lock is held.
   */
  release(): Promise<boolean> {
    return this._keeper.release(this);
  }

  /** Sets a new lease in milliseconds, counted from now. Renewal does this automatically, with the lock's lease. */
  async extend(lease?: number): Promise<void> {
    await this._keeper.extend(this, lease === undefined ? this._request.lease : msOf(lease, 'lease', this.key, 1));
  }

  /** Asks the server whether the lock is held. Resolves to the milliseconds left, or rejects with LockLostError. */
  verify(): Promise<number> {
    return this._keeper.verify(this);
  }

  /**
   * Runs one command on the lock's server if the lock is held there at that moment; otherwise rejects with
   * LockLostError. In a cluster, the key must be in the lock's slot. ioredis's `keyPrefix` applies as in its own
   * commands.
   */
  fenced(command: string, key: Key, ...args: (string | Uint8Array | number)[]): Promise<unknown> {
    return this._keeper.fenced(this, [command, key, ...args]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this._ended && !(await this.release())) throw this.lost ?? this._over();
  }

  /** @internal The EXTENDs that the server may still run. Created on demand: most holds are never extended. */
  get _inFlight(): InFlight {
    this.#inFlight ??= new InFlight(this._keeper.clock);
    return this.#inFlight;
  }

  /** @internal Called when the lock has ended without a release. The user is notified once. */
  _lose(why: string, gone = false, cause?: unknown): void {
    this._gone ||= gone;
    if (this.#lost || this._ended) return;
    this.#lost = new LockLostError(this.key, `lost: ${why}`, cause);
    this.#abort?.abort(this.#lost);
    this._keeper.lost(this, this.#lost);
  }

  /** @internal */
  _over(): LockLostError {
    return new LockLostError(this.key, 'lost: its grant had ended before it was released');
  }
}

/** The held lock of one tick. */
export interface HeldOnce extends Held {
  /** The number of the tick: how many periods after the beginning of 1970 it begins, by the server's clock. */
  readonly tick: number;
  /** Whether the lease of a process that ran expired within this tick's window: its work may be half done. */
  readonly recovered: boolean;
}
