/** What the rest needs from a client library: the application's own client, and extra connections. */

import type { Clock } from './clock.js';
import { ConnectionLost, read } from './failures.js';

export type Word = string | Buffer | number;
export type Words = readonly Word[];

/** One of the manager's own connections. */
export interface Connection {
  /** `asBytes`: strings in the reply are Buffers. */
  call(words: Words, timeout: number, asBytes?: boolean): Promise<unknown>;
  subscribe(channel: string, received: (message: string) => void, timeout: number): Promise<void>;
  readonly isOpen: boolean;
  /** The address of its server in a cluster; otherwise empty. */
  readonly server: string;
  /** Called once, when the connection ends, whoever ended it. */
  onEnd(ended: () => void): void;
  close(): void;
}

/** The application's own client. */
export interface Wire {
  /** One exchange. Rejects with ReplyError or ConnectionLost. `asBytes`: strings in the reply are Buffers. */
  call(key: Buffer, words: Words, timeout: number, asBytes?: boolean): Promise<unknown>;
  connect(key: Buffer, timeout: number): Promise<Connection>;
  /** The `server` of a new connection for this key. Rejects with ReplyError or ConnectionLost. */
  serverOf(key: Buffer, timeout: number): Promise<string>;
  /** Changes whenever the library may have sent a command twice: it resends after a reconnect. */
  epoch(): number;
  /** Asks again which cluster node has the key. */
  refresh(key: Buffer): Promise<void>;
  readonly isCluster: boolean;
  /** The clock on which leases and waits are measured. */
  readonly clock: Clock;
  /** Whether all calls go over one connection. */
  readonly hasOneConnection: boolean;
  /** What the library puts in front of keys. A call's `key` and the keys in its `words` already have it. */
  readonly prefix: string;
  /** The application's own command, with the prefix where the library would put it. */
  prefixed(words: Words): Words;
}

/** How a part of the manager reaches the server: the client, and how long a reply may take. */
export interface Reach {
  readonly wire: Wire;
  readonly clock: Clock;
  readonly timeout: number;
}

/**
 * A promise with a time-out; `late` creates its error. Rejects with ReplyError or ConnectionLost. `onFailure` is called
 * before the latter; the manager's own connections, which do not keep the process alive, pass this function.
 *
 * No async function wraps this or merely passes its result on, because each would create more garbage than the rest.
 */
export function within<T>(
  promise: Promise<T>,
  timeout: number,
  late: () => ConnectionLost,
  onFailure?: () => void,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const fail = (thrown: unknown): void => {
      clearTimeout(timer);
      const error = read(thrown);
      if (error instanceof ConnectionLost) onFailure?.();
      reject(error);
    };
    const timer = setTimeout(() => fail(late()), timeout);
    if (onFailure) timer.unref();
    promise.then((value) => {
      clearTimeout(timer);
      resolve(value);
    }, fail);
  });
}

/** Turns what a library throws into a rejection. */
export function asked(ask: () => Promise<unknown>): Promise<unknown> {
  try {
    return ask();
  } catch (error) {
    return Promise.reject(error as Error);
  }
}

/** No reply has arrived. `settled`: it still may. */
export const noReply = (timeout: number, settled?: Promise<unknown>): ConnectionLost =>
  new ConnectionLost(new Error(`no reply within ${timeout} ms`), settled);

/** A map's fields, in RESP2 or RESP3, as either library returns them. */
export function fieldsOf(reply: unknown): Map<string, unknown> {
  const fields = new Map<string, unknown>();
  if (Array.isArray(reply)) for (let at = 0; at < reply.length; at += 2) fields.set(String(reply[at]), reply[at + 1]);
  else if (reply instanceof Map) for (const [name, value] of reply) fields.set(String(name), value);
  else for (const [name, value] of Object.entries(reply ?? {})) fields.set(name, value);
  return fields;
}

export const text = (words: Words): (string | Buffer)[] =>
  words.map((word) => (typeof word === 'number' ? String(word) : word));
