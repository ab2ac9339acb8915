/** The server's clock, and the margin that the server adds to leases. Each is requested at most once a minute. */

import { pause } from './clock.js';
import { ConnectionLost, isTransient, ReplyError, read } from './failures.js';
import { fieldsOf, type Reach } from './wire.js';

/** How long a reply is valid. */
const VALID_FOR = 60_000;
/** An estimate that may be off by more than this is used, but not kept. */
export const MOST_DOUBT = 250;
const PAUSE = 10;
const USUAL_MARGIN = 1000;

export interface Estimate {
  /** The server's time minus the local clock. */
  readonly offset: number;
  /** By how much the offset may be wrong. */
  readonly doubt: number;
  /** When the reply arrived, by the local clock. */
  readonly asked: number;
}

/** Whether it is accurate enough to be kept. */
export const isGood = (estimate: Estimate): boolean => estimate.doubt <= MOST_DOUBT;

/** From a reply to TIME: the server read its clock at some moment between `sent` and `received`. */
export function estimateOf(reply: unknown, sent: number, received: number): Estimate {
  const [seconds, micros] = Array.isArray(reply) && reply.length === 2 ? reply.map((part) => Number(String(part))) : [];
  const server = Number(seconds) * 1000 + Number(micros) / 1000;
  if (Number.isNaN(server)) throw new ReplyError(`ERR unexpected reply ${JSON.stringify(reply)} to TIME`);
  return { offset: server - (sent + received) / 2, doubt: (received - sent) / 2, asked: received };
}

/** From a reply to LOCK.INFO. Both fields are whole milliseconds, one rounded down and the other up. */
export function marginOf(reply: unknown): number {
  const fields = fieldsOf(reply);
  const [lease, free] = [Number(fields.get('lease-ms')), Number(fields.get('free-in-ms') ?? Number.NaN)];
  return lease > 0 && free >= 0 ? Math.max(0, free - lease - 1) : USUAL_MARGIN;
}

export class ServerClock {
  readonly #reach: Reach;
  /** By key in a cluster, because each of its servers has its own clock. */
  readonly #known = new Map<string, Estimate>();
  /** Requests of one caller, while others wait for the same reply. */
  readonly #asking = new Map<string, Promise<Estimate>>();
  #margin = USUAL_MARGIN;
  #marginAsked = -Infinity;
  #askingMargin: Promise<void> | undefined;

  constructor(reach: Reach) {
    this.#reach = reach;
  }

  /** Estimates the clock of the key's server. Rejects with ReplyError or ConnectionLost. */
  async read(key: Buffer): Promise<Estimate> {
    const place = this.#reach.wire.isCluster ? key.toString('latin1') : '';
    const found = this.#known.get(place);
    if (found && this.#reach.clock.now() < found.asked + VALID_FOR) return found;
    let asking = this.#asking.get(place);
    if (!asking) {
      asking = this.#ask(key, place).finally(() => this.#asking.delete(place));
      this.#asking.set(place, asking);
    }
    return asking;
  }

  async #ask(key: Buffer, place: string): Promise<Estimate> {
    const found = await this.#estimate(key);
    if (isGood(found)) {
      for (const [other, old] of this.#known) if (found.asked >= old.asked + VALID_FOR) this.#known.delete(other);
      this.#known.set(place, found);
    }
    return found;
  }

  /** Asks twice if the reply is lost or slow. */
  async #estimate(key: Buffer): Promise<Estimate> {
    let found: Estimate;
    try {
      found = await this.#call(key);
    } catch (thrown) {
      const error = read(thrown);
      if (!isTransient(error)) throw error;
      const { wire } = this.#reach;
      if (wire.isCluster && error instanceof ConnectionLost) await wire.refresh(key);
      await pause(this.#reach.clock, PAUSE, true);
      return this.#call(key);
    }
    if (isGood(found)) return found;
    // It may have had to wait for a new connection.
    const again = await this.#call(key).catch(() => found);
    return again.doubt < found.doubt ? again : found;
  }

  async #call(key: Buffer): Promise<Estimate> {
    const { wire, timeout } = this.#reach;
    const sent = this.#reach.clock.now();
    const reply = await wire.call(key, ['TIME'], timeout);
    return estimateOf(reply, sent, this.#reach.clock.now());
  }

  /** The margin, as currently known. */
  get margin(): number {
    return this.#margin;
  }

  /** The module's margin. The key's lock is held. Does not reject. */
  async readMargin(key: Buffer): Promise<number> {
    if (this.#reach.clock.now() >= this.#marginAsked + VALID_FOR) {
      this.#askingMargin ??= this.#askMargin(key).finally(() => {
        this.#askingMargin = undefined;
      });
      await this.#askingMargin;
    }
    return this.#margin;
  }

  async #askMargin(key: Buffer): Promise<void> {
    const { wire, timeout } = this.#reach;
    try {
      this.#margin = marginOf(await wire.call(key, ['LOCK.INFO', key], timeout));
    } catch (error) {
      if (!(read(error) instanceof ReplyError)) return;
      // This user is not allowed to ask.
    }
    this.#marginAsked = this.#reach.clock.now();
  }
}
