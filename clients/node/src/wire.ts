/** What the rest needs of a client library, and what errors of the server and the connection mean for a lock. */

import {
  LockBadArgumentError,
  LockDeadlockError,
  LockDeniedError,
  LockError,
  LockNoServerError,
  LockRefusedError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';

export type Word = string | Buffer | number;
export type Words = readonly Word[];

/** No connection, or no reply in time. `settled`: the reply may still come, on a connection that others share. */
export class ConnectionLost extends Error {
  constructor(
    override readonly cause: unknown,
    readonly settled?: Promise<unknown>,
    readonly final = false,
  ) {
    super(cause instanceof Error ? cause.message || cause.name : String(cause));
  }
}

/** An error that the server replied. */
export class ReplyError extends Error {
  readonly code: string;

  constructor(text: string) {
    super(text);
    this.code = /^([A-Z]+) /.exec(text)?.[1] ?? 'ERR';
  }

  get isUnknownCommand(): boolean {
    return /^ERR unknown (redis )?command/i.test(this.message); // the latter from within a script
  }
}

/** A connection of the manager's own. */
export interface Connection {
  call(words: Words, timeout: number): Promise<unknown>;
  subscribe(channel: string, heard: (message: string) => void, timeout: number): Promise<void>;
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
  /** Finds out anew which server of a cluster has the key. */
  refresh(key: Buffer): Promise<void>;
  readonly isCluster: boolean;
  /** Whether all calls go over one connection. */
  readonly hasOneConnection: boolean;
  /** What the library puts in front of keys. It is in front of `key` and of the keys in `words` of a call already. */
  readonly prefix: string;
  /** An application's own command, with the prefix where the library would put it. */
  prefixed(words: Words): Words;
}

/**
 * A promise with a time-out; `late` makes its error. Rejects with ReplyError or ConnectionLost; `onFailure` is called before the latter,
 * and given by connections of the manager's own, which keep no process from ending.
 *
 * No async function around it, nor in what only passes its result on: each would make more garbage than the rest.
 */
export function within<T>(promise: Promise<T>, timeout: number, late: () => ConnectionLost, onFailure?: () => void): Promise<T> {
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
export const silent = (timeout: number, settled?: Promise<unknown>): ConnectionLost =>
  new ConnectionLost(new Error(`no reply within ${timeout} ms`), settled);

export const text = (words: Words): (string | Buffer)[] =>
  words.map((word) => (typeof word === 'number' ? String(word) : word));

/** What an exception of a library means. */
export function read(error: unknown): ReplyError | ConnectionLost {
  if (error instanceof ReplyError || error instanceof ConnectionLost) return error;
  const message = error instanceof Error ? error.message : String(error);
  const name = error instanceof Error ? error.constructor.name : '';
  if (/^(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)/.test(message)) {
    return new ConnectionLost(error, undefined, true);
  }
  if (/^(ReplyError|SimpleError|ErrorReply|BlobError)$/.test(name) || /^[A-Z]{3,} \S/.test(message)) {
    return new ReplyError(message);
  }
  return new ConnectionLost(error);
}

/** States of a server that pass. */
const PASSING = new Set([
  'ASK',
  'BUSY',
  'BUSYLOCKS',
  'CLUSTERDOWN',
  'GRACE',
  'LOADING',
  'MASTERDOWN',
  'MISCONF',
  'MOVED',
  'NOREPLICAS',
  'OOM',
  'READONLY',
  'TRYAGAIN',
  'UNBLOCKED',
]);
/** The same call would get these again. */
const LASTING = /^(GRACE lease|BUSYLOCKS 64 waits)/;

/** Whether to try again while wait time remains. */
export function mayPass(error: ReplyError | ConnectionLost): boolean {
  if (error instanceof ConnectionLost) return !error.final;
  return PASSING.has(error.code) && !LASTING.test(error.message);
}

/** The error as users get it. */
export function typed(error: ReplyError | ConnectionLost, name: string): LockError {
  const cause = error.cause ?? error;
  if (error instanceof ConnectionLost) return new (error.final ? LockDeniedError : LockNoServerError)(name, error.message, cause);
  if (error.code === 'DEADLOCK') return new LockDeadlockError(name, error.message, cause);
  const isUnavailable = PASSING.has(error.code) || error.code === 'CLOCK' || error.isUnknownCommand;
  if (isUnavailable) return new LockUnavailableError(name, error.message, cause);
  if (error.code === 'NOPERM') return new LockDeniedError(name, error.message, cause);
  return new LockBadArgumentError(name, error.message, cause);
}

export const refused = (name: string): LockError => new LockRefusedError(name, 'somebody else has it');

/** The wait is over. With an error, that is what the server said to the last copy. */
export const timedOut = (name: string, waited: number, error?: ReplyError): LockError =>
  error
    ? new LockTimeoutError(name, `not granted within ${Math.round(waited)} ms: ${error.message}`, error)
    : new LockTimeoutError(name, `somebody else still had it after ${Math.round(waited)} ms`);
