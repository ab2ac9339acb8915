/** What the rest needs of a client library: the application's own client, and connections besides it. */

import { ConnectionLost, read } from './failures.js';

export type Word = string | Buffer | number;
export type Words = readonly Word[];

/** A connection of the manager's own. */
export interface Connection {
  call(words: Words, timeout: number): Promise<unknown>;
  subscribe(channel: string, received: (message: string) => void, timeout: number): Promise<void>;
  readonly isOpen: boolean;
  /** Called once, when the connection ends, whoever ended it. */
  onEnd(ended: () => void): void;
  close(): void;
}

/** The application's own client. */
export interface Wire {
  /** One exchange. Rejects with ReplyError or ConnectionLost. */
  call(key: Buffer, words: Words, timeout: number): Promise<unknown>;
  connect(key: Buffer, timeout: number): Promise<Connection>;
  /** Changes whenever the library may have sent a command twice: it sends again after it has reconnected. */
  epoch(): number;
  /** Asks again which server of a cluster has the key. */
  refresh(key: Buffer): Promise<void>;
  readonly isCluster: boolean;
  /** Whether all calls go over one connection. */
  readonly hasOneConnection: boolean;
  /** What the library puts in front of keys. It is in front of `key` and of the keys in `words` of a call already. */
  readonly prefix: string;
  /** An application's own command, with the prefix where the library would put it. */
  prefixed(words: Words): Words;
}

/** How a part of the manager reaches the server: the client, and how long a reply may take. */
export interface Reach {
  readonly wire: Wire;
  readonly timeout: number;
}

/**
 * A promise with a time-out; `late` creates its error. Rejects with ReplyError or ConnectionLost; `onFailure` is called
 * before the latter, and given by connections of the manager's own, which keep no process from ending.
 *
 * No async function around it, nor in what only passes its result on: each would make more garbage than the rest.
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

/** What a library throws instead of rejecting. */
export function asked(ask: () => Promise<unknown>): Promise<unknown> {
  try {
    return ask();
  } catch (error) {
    return Promise.reject(error as Error);
  }
}

/** No reply has come. `settled`: it still may. */
export const noReply = (timeout: number, settled?: Promise<unknown>): ConnectionLost =>
  new ConnectionLost(new Error(`no reply within ${timeout} ms`), settled);

export const text = (words: Words): (string | Buffer)[] =>
  words.map((word) => (typeof word === 'number' ? String(word) : word));
