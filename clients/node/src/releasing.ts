/**
 * Releases the locks of holds that have ended, with their results. A release that gets no reply is sent again; after
 * the time that a call may take, in the background, until the lease ends.
 */

import { type Clock, pause } from './clock.js';
import { ConnectionLost, isTransient, ReplyError, read, typed } from './failures.js';
import type { Form, Send } from './form.js';
import type { Held } from './hold.js';
import type { Timer } from './renewal.js';
import { isTooLong, store } from './results.js';
import type { Wire, Words } from './wire.js';

/** What releasing needs from the manager. */
export interface Releaser {
  readonly clock: Clock;
  readonly wire: Wire;
  readonly timeout: number;
  readonly timer: Timer<Held>;
  readonly portable: Form;
  /** Sends a command that may be sent twice. Rejects with ReplyError or ConnectionLost. */
  send(key: Buffer, words: Words, timeout: number): Promise<unknown>;
  /** Sends a command in the hold's form. Rejects with the typed error. */
  ask<T>(held: Held, call: (form: Form, send: Send) => Promise<T>): Promise<T>;
  /** Notes that the module is gone. */
  missed(held: Held, error: ReplyError): boolean;
  warn(text: string): void;
}

export class Releasing {
  readonly #releaser: Releaser;

  constructor(releaser: Releaser) {
    this.#releaser = releaser;
  }

  /** Releases the lock now. Resolves to whether it was held to the end. */
  async now(held: Held): Promise<boolean> {
    const { clock, wire, timeout } = this.#releaser;
    const began = clock.now();
    const epoch = wire.epoch();
    try {
      return this.#wasHeld(held, await this.#send(held), epoch !== wire.epoch());
    } catch (thrown) {
      return this.#again(held, read(thrown), began + timeout);
    }
  }

  /** Cuts the lease to what is left of `atLeast`; the timer releases the lock after that. */
  async later(held: Held, wait: number): Promise<boolean> {
    const { clock, timer } = this.#releaser;
    const reply = await this.#releaser.ask(held, (form, send) => form.extend(held._request, held.token, wait, send));
    const at = clock.now() + wait;
    timer.later(at, () => timer.owe(at + 1000, this.#settling(held)));
    return reply === 1;
  }

  /** Releases the lock in the background. */
  owe(held: Held): void {
    this.#releaser.timer.owe(held._lease.end, this.#settling(held));
  }

  async #again(held: Held, first: ReplyError | ConnectionLost, end: number): Promise<boolean> {
    const { clock, wire } = this.#releaser;
    for (let tries = 0, error = first; ; ) {
      if (!(error instanceof ReplyError && this.#releaser.missed(held, error))) {
        tries += 1;
        if (!isTransient(error)) throw typed(error, held.key);
        const settled = error instanceof ConnectionLost ? error.settled : undefined;
        if (settled || clock.now() >= Math.min(end, held._lease.lostAt)) {
          // The copy in flight may do the work. Then the one in the background finds nothing to do.
          this.owe(held);
          this.#releaser.warn(`the lock ${held.key} is released in the background: ${error.message}`);
          return clock.now() < held._lease.lostAt;
        }
        await pause(clock, 20 * tries, true);
      }
      const epoch = wire.epoch();
      try {
        return this.#wasHeld(held, await this.#send(held), tries > 0 || epoch !== wire.epoch());
      } catch (thrown) {
        error = read(thrown);
      }
    }
  }

  /** A release that was sent twice may find its own work already done. */
  #wasHeld(held: Held, reply: unknown, sentTwice: boolean): boolean {
    const isInTime = this.#releaser.clock.now() < held._lease.lostAt;
    return held._request.wasHeld(reply) || (reply === 0 && sentTwice && isInTime);
  }

  #send(held: Held): Promise<unknown> {
    const { _request: request, token } = held;
    const send: Send = (words) => this.#releaser.send(request.key, words, this.#releaser.timeout);
    if (held._result) return this.#sendWith(held._result, held, send);
    return held._form.release(request, token, send);
  }

  async #sendWith(result: Buffer, held: Held, send: Send): Promise<unknown> {
    const { _request: request, token } = held;
    const { clock, portable } = this.#releaser;
    if (held._form === portable && clock.now() < held._lease.lostAt) await store(request, token, result, send);
    try {
      return await held._form.release(request, token, send, result);
    } catch (thrown) {
      const error = read(thrown);
      if (!(error instanceof ReplyError && isTooLong(error))) throw error;
      held._result = undefined;
      return held._form.release(request, token, send);
    }
  }

  #settling(held: Held): () => Promise<unknown> {
    return async () => {
      try {
        return await this.#send(held);
      } catch (thrown) {
        const error = read(thrown);
        if (error instanceof ReplyError) this.#releaser.missed(held, error);
        throw error;
      }
    };
  }
}
