/**
 * The commands of one hold that the server may still run. They do not refer to the hold, so that it can be collected
 * while a reply is missing.
 */

import type { Clock } from './clock.js';
import { ConnectionLost, ReplyError, read } from './failures.js';

export class InFlight {
  readonly #commands = new Set<Promise<void>>();
  readonly #clock: Clock;
  /** When one last failed without a reply: the server may run it a little later. */
  failedAt = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a reply may still arrive. */
  get arePending(): boolean {
    return this.#commands.size > 0;
  }

  /** Notes a command that was sent, and returns its reply. */
  add(reply: Promise<unknown>): Promise<unknown> {
    // The late reply on a shared connection counts as well.
    const last = reply.catch(
      (error: unknown) => (error instanceof ConnectionLost && error.settled) || Promise.reject(error),
    );
    const command: Promise<void> = last.then(
      () => this.#end(command),
      (error: unknown) => {
        if (!(read(error) instanceof ReplyError)) this.failedAt = this.#clock.now();
        this.#end(command);
      },
    );
    this.#commands.add(command);
    return reply;
  }

  #end(command: Promise<void>): void {
    this.#commands.delete(command);
  }

  /** Waits until no more replies can arrive, for at most that long. Resolves to whether that is so. */
  async settle(timeout?: number): Promise<boolean> {
    if (!this.arePending) return true;
    let cancel = (): void => undefined;
    const late = new Promise<void>((resolve) => {
      if (timeout !== undefined) cancel = this.#clock.after(timeout, resolve, true);
    });
    await Promise.race([Promise.all(this.#commands), late]);
    cancel();
    return !this.arePending;
  }
}
