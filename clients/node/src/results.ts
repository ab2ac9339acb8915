/**
 * Results, which end the attempts that wait for them without the lock. Where the module is not loaded, the holder
 * stores its result at a key beside the lock's queue, before it releases the lock.
 */

import { ConnectionLost, ReplyError } from './failures.js';
import type { Send } from './form.js';
import { type Request, resultOf, wordOf } from './request.js';
import type { Reach } from './wire.js';

const LONGEST = 65_536;

/** Thrown when an attempt has ended: its holder released the lock with this result. */
export class Resolved {
  constructor(readonly value: Buffer) {}
}

/** A stored result, and the token of the grant in which it was computed. */
interface Stored {
  readonly token: number;
  readonly value: Buffer;
}

const NOTHING: Stored = { token: 0, value: Buffer.alloc(0) };

/** What is stored now. undefined: this user may not ask, or the lock has no key for results. */
async function stored({ wire, timeout }: Reach, { key }: Request): Promise<Stored | undefined> {
  const name = resultOf(key);
  if (!name) return undefined;
  let reply: unknown;
  try {
    reply = await wire.call(key, ['GET', wordOf(name)], timeout, true);
  } catch (error) {
    if (error instanceof ReplyError || error instanceof ConnectionLost) return undefined;
    throw error;
  }
  if (!Buffer.isBuffer(reply)) return NOTHING;
  const space = reply.indexOf(' ');
  const token = reply.toString('latin1', 0, Math.max(0, space));
  return /^\d+$/.test(token) ? { token: Number(token), value: reply.subarray(space + 1) } : NOTHING;
}

/** What one attempt sees of stored results. */
export class Lookout {
  readonly #reach: Reach;
  readonly #request: Request;
  #first: Stored | undefined;
  #hasLooked = false;

  constructor(reach: Reach, request: Request) {
    this.#reach = reach;
    this.#request = request;
  }

  /** Call this when the attempt begins to wait. */
  async look(): Promise<void> {
    if (this.#hasLooked) return;
    this.#first = await stored(this.#reach, this.#request);
    this.#hasLooked = true;
  }

  /** Call this with the grant. Rejects with Resolved if a result was stored while the attempt waited. */
  async lookAgain(): Promise<void> {
    const now = this.#first && (await stored(this.#reach, this.#request));
    if (now && now.token > (this.#first as Stored).token) throw new Resolved(now.value);
  }
}

/** Stores a result until the lease would have expired. If that fails, the next holder computes its own. */
export async function store(request: Request, token: number, value: Buffer, send: Send): Promise<void> {
  const name = resultOf(request.key);
  if (!name || value.length > LONGEST) return;
  const words = ['SET', wordOf(name), Buffer.concat([Buffer.from(`${token} `), value]), 'PX', Math.ceil(request.lease)];
  try {
    await send(words);
  } catch (error) {
    if (!(error instanceof ReplyError || error instanceof ConnectionLost)) throw error;
  }
}

/** The server passes on no result that long. */
export const isTooLong = (error: ReplyError): boolean => error.message.startsWith('ERR result is longer');
