/**
 * The commands of one hold that the server may still run. They do not refer to the hold, so that it can be collected
 * while a reply is missing.
 */

import { now } from './clock.js';
import { ConnectionLost, ReplyError, read } from './failures.js';

export class Flights {
  readonly #flights = new Set<Promise<void>>();
  /** When one last failed without a reply: the server may run it a little later. */
  failedAt = -Infinity;

  /** Whether a reply may still come. */
  get arePending(): boolean {
    return this.#flights.size > 0;
  }

  /** Notes a command that was sent, and returns its reply. */
  add(reply: Promise<unknown>): Promise<unknown> {
    // The late reply on a shared connection counts as well.
    const last = reply.catch(
      (error: unknown) => (error instanceof ConnectionLost && error.settled) || Promise.reject(error),
    );
    const flight: Promise<void> = last.then(
      () => this.#end(flight),
      (error: unknown) => {
        if (!(read(error) instanceof ReplyError)) this.failedAt = now();
        this.#end(flight);
      },
    );
    this.#flights.add(flight);
    return reply;
  }

  #end(flight: Promise<void>): void {
    this.#flights.delete(flight);
  }

  /** Waits until no reply may come, for at most that long. Resolves to whether that is so. */
  async settle(timeout?: number): Promise<boolean> {
    if (!this.arePending) return true;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      if (timeout !== undefined) timer = setTimeout(resolve, timeout);
    });
    await Promise.race([Promise.all(this.#flights), late]);
    clearTimeout(timer);
    return !this.arePending;
  }
}
