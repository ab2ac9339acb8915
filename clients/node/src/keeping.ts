/**
 * Locks that outlive their holds: a last EXTEND gives the lock a lease that ends at a set time. No RELEASE follows.
 * While its reply is missing, it is sent again; after the time that a call may take, in the background.
 */

import { type Clock, pause } from './clock.js';
import { ConnectionLost, isTransient, type ReplyError, read, typed } from './failures.js';
import type { Held } from './hold.js';
import type { Timer } from './renewal.js';

/** An EXTEND's lease is counted from when the server runs it, so one that takes longer than this is sent again. */
export const LATE_EXTEND = 250;
const MOST_COPIES = 3;
const PAUSE = 20;

/** What keeping needs from the manager. */
export interface Extender {
  readonly clock: Clock;
  readonly timeout: number;
  readonly timer: Timer<Held>;
  /** Sends an EXTEND in the hold's form. Rejects with ReplyError or ConnectionLost. */
  sendExtend(held: Held, lease: number, timeout: number): Promise<unknown>;
  /** Notes that the module is gone. */
  missed(held: Held, error: ReplyError): boolean;
  warn(text: string): void;
}

export class Keeping {
  readonly #extender: Extender;
  /** How long a command may still run after its connection was closed. */
  readonly #stillRuns: number;

  constructor(extender: Extender, stillRuns: number) {
    this.#extender = extender;
    this.#stillRuns = stillRuns;
  }

  /** The hold has ended, so nothing renews it. Resolves to whether the lock was held to the end of the hold. */
  async keep(held: Held, until: number): Promise<boolean> {
    const { timeout, clock } = this.#extender;
    const end = clock.now() + timeout;
    // A renewal that the server runs after this EXTEND would shorten the lease.
    const isIdle = await held._inFlight.settle(timeout);
    let isUnsure = !isIdle || this.#extender.clock.now() < held._inFlight.failedAt + this.#stillRuns;
    for (let tries = 1; ; tries += 1) {
      try {
        const reply = await this.#extendUntil(held, until);
        if (reply === 1 && isUnsure) this.#again(held, until);
        return reply === 1;
      } catch (thrown) {
        const error = read(thrown);
        if (!isTransient(error)) throw typed(error, held.key);
        const isLost = error instanceof ConnectionLost;
        isUnsure ||= isLost;
        if ((isLost && error.settled) || this.#extender.clock.now() >= end) {
          this.#extender.warn(`the lock ${held.key} is kept for its period in the background: ${error.message}`);
          this.#owe(held, until, isUnsure);
          return true;
        }
        await pause(clock, PAUSE * tries, true);
      }
    }
  }

  /** Keeps the lock in the background. `isUnsure`: the server may still run an earlier EXTEND. */
  #owe(held: Held, until: number, isUnsure: boolean): void {
    if (this.#extender.clock.now() >= until) return;
    this.#extender.timer.owe(until, async () => {
      try {
        const reply = await this.#extendUntil(held, until);
        if (reply !== 1) this.#extender.warn(`the lock ${held.key} ended before it could be kept for its period`);
        else if (isUnsure) this.#again(held, until);
      } catch (thrown) {
        const error = read(thrown);
        isUnsure ||= error instanceof ConnectionLost;
        if (!isTransient(error))
          this.#extender.warn(`the lock ${held.key} could not be kept for its period: ${error.message}`);
        throw error;
      }
    });
  }

  /** Sends the last copy once the server can no longer run an earlier one, which would set another lease. */
  #again(held: Held, until: number): void {
    const copy = (): void =>
      this.#extender.timer.later(this.#extender.clock.now() + this.#stillRuns, () => this.#owe(held, until, false));
    copy();
    if (held._inFlight.arePending) void held._inFlight.settle().then(copy); // on a connection that has not answered
  }

  /** Sets a lease that ends then. Never earlier: the lease is rounded up. */
  async #extendUntil(held: Held, until: number): Promise<unknown> {
    for (let copies = 1; ; copies += 1) {
      const sent = this.#extender.clock.now();
      const lease = Math.max(1, Math.ceil(until - sent));
      try {
        const reply = await this.#extender.sendExtend(held, lease, this.#extender.timeout);
        if (reply !== 1 || this.#extender.clock.now() <= sent + LATE_EXTEND || copies === MOST_COPIES) return reply;
      } catch (thrown) {
        const error = read(thrown);
        if (error instanceof ConnectionLost || !this.#extender.missed(held, error)) throw error;
      }
    }
  }
}
