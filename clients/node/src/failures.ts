/** What server and connection errors mean for a lock. */

import {
  LockBadArgumentError,
  LockDeadlockError,
  LockDeniedError,
  type LockError,
  LockNoServerError,
  LockRefusedError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';

/** No connection, or no reply in time. `settled`: the reply may still arrive, on a shared connection. */
export class ConnectionLost extends Error {
  constructor(
    override readonly cause: unknown,
    readonly settled?: Promise<unknown>,
    readonly final = false,
  ) {
    super(cause instanceof Error ? cause.message || cause.name : String(cause));
  }
}

/** An error reply from the server. */
export class ReplyError extends Error {
  readonly code: string;

  constructor(text: string) {
    super(text);
    this.code = /^([A-Z]+) /.exec(text)?.[1] ?? 'ERR';
  }

  get isUnknownCommand(): boolean {
    return /^ERR unknown (redis )?command/i.test(this.message); // the latter comes from within a script
  }
}

/** What a library's exception means. */
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

/** A server's temporary states. */
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
/** Errors that a retry would get again. */
const LASTING = /^(GRACE lease|BUSYLOCKS 64 waits)/;

/** Whether to try again while wait time remains. */
export function isTransient(error: ReplyError | ConnectionLost): boolean {
  if (error instanceof ConnectionLost) return !error.final;
  return PASSING.has(error.code) && !LASTING.test(error.message);
}

/** The error as users get it. */
export function typed(error: ReplyError | ConnectionLost, name: string): LockError {
  const cause = error.cause ?? error;
  if (error instanceof ConnectionLost)
    return new (error.final ? LockDeniedError : LockNoServerError)(name, error.message, cause);
  if (error.code === 'DEADLOCK') return new LockDeadlockError(name, error.message, cause);
  const isUnavailable = PASSING.has(error.code) || error.code === 'CLOCK' || error.isUnknownCommand;
  if (isUnavailable) return new LockUnavailableError(name, error.message, cause);
  if (error.code === 'NOPERM') return new LockDeniedError(name, error.message, cause);
  return new LockBadArgumentError(name, error.message, cause);
}

/** `isFree`: the lock was to be recovered, but its last holder has released it. */
export const refused = (name: string, isFree = false): LockError =>
  new LockRefusedError(name, isFree ? 'there is nothing to recover: the lock is free' : 'somebody else has it');

/** The wait has ended. `error` is the reply to the last copy, if that was an error. */
export const timedOut = (name: string, waited: number, error?: ReplyError): LockError =>
  error
    ? new LockTimeoutError(name, `not granted within ${Math.round(waited)} ms: ${error.message}`, error)
    : new LockTimeoutError(name, `somebody else still had it after ${Math.round(waited)} ms`);
