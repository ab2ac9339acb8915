/** How locks are requested: with the module's commands (`commands`), or without it with the script (`portable`). */

import type { Request } from './request.js';
import type { Words } from './wire.js';

/** Sends words over the connection that the caller has chosen. */
export type Send = (words: Words) => Promise<unknown>;

export interface Form {
  /** One copy of an attempt. With a channel it joins the queue, for at most `wait` milliseconds. */
  acquire(request: Request, id: string, wait: number, channel: string | undefined, send: Send): Promise<unknown>;
  /** Ends an attempt: its wait, and what it may have been granted. */
  cancel(request: Request, id: string, channel: string, send: Send): Promise<unknown>;
  extend(request: Request, token: number, lease: number, send: Send): Promise<unknown>;
  /** `result`: for the attempts that take it. The script cannot pass it on. */
  release(request: Request, token: number, send: Send, result?: Buffer): Promise<unknown>;
  /** The milliseconds left for each key. */
  check(request: Request, token: number, send: Send): Promise<unknown[]>;
  /** The fields of LOCK.INFO for the first key. */
  info(request: Request, send: Send): Promise<unknown>;
  /** A script that runs a command if the lock is held: the lock is its first key, the token its first argument. */
  readonly fenced: string;
}
