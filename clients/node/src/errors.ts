/**
 * The errors of this package: one class for each kind, with the lock's key in the message and in `key`, and the kind in
 * `code`. `instanceof` also recognizes errors from another copy of this package in the same process.
 */

/** The kind of an error. It is the same in all versions and all languages of this package. */
export type LockErrorCode =
  | 'refused'
  | 'timeout'
  | 'lost'
  | 'deadlock'
  | 'unavailable'
  | 'denied'
  | 'no_server'
  | 'argument'
  | 'misuse';

/** The property on each class's prototype that lists the kinds of its errors. */
const KINDS = Symbol.for('serverlock.kinds');

export abstract class LockError extends Error {
  /** The kind of the error. */
  declare readonly code: LockErrorCode;
  /** The key, or the keys, as messages show them; empty if the error is not about a lock. */
  readonly key: string;

  constructor(key: string, text: string, cause?: unknown) {
    super(key ? `the lock ${key}: ${text}` : text, cause === undefined ? undefined : { cause });
    this.key = key;
    Object.defineProperty(this, 'code', { value: codeOf(this), enumerable: true });
  }

  /** The error as JSON. A structured clone has only the message: send this to workers instead. */
  toJSON(): { name: string; code: LockErrorCode; key: string; message: string } {
    const { name, code, key, message } = this;
    return { name, code, key, message };
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    // Classes that an application derives from these are checked as usual.
    if (!Object.hasOwn(this.prototype, KINDS))
      return Function.prototype[Symbol.hasInstance].call(this, value) as boolean;
    const kinds = kindsOf(value);
    return kinds?.includes((kindsOf(this.prototype) as string[])[0] as string) ?? false;
  }
}

/** Somebody else has the lock, or an operator cancelled the wait. */
export class LockRefusedError extends LockError {}
/** Somebody else still had the lock when the wait ended. */
export class LockTimeoutError extends LockRefusedError {}
/** The lock is no longer held, or no longer certain to be held. */
export class LockLostError extends LockError {}
/** The wait would close a cycle of clients that are waiting for each other's session locks. */
export class LockDeadlockError extends LockError {}
/** The server cannot grant the lock now (GRACE, NOREPLICAS, OOM, LOADING, BUSY and the like), or lacks the module. */
export class LockUnavailableError extends LockError {}
/** The server does not allow this user the command or the key. */
export class LockDeniedError extends LockError {}
/** No connection to a server, or no reply in time. */
export class LockNoServerError extends LockError {}
/** An argument is wrong, or the key holds something that is not a lock. */
export class LockBadArgumentError extends LockError {}
/** A lock acquired again within its own scope, a closed manager, or a lock released twice. */
export class LockMisuseError extends LockError {}

function kindsOf(value: unknown): string[] | undefined {
  return typeof value === 'object' && value !== null ? (value as { [KINDS]?: string[] })[KINDS] : undefined;
}

function codeOf(error: LockError): string {
  return (kindsOf(error) as string[])[0] as string;
}

/** Names are spelled out, because a minifier changes class names. */
function define(type: { prototype: LockError }, name: string, ...kinds: string[]): void {
  Object.defineProperty(type.prototype, 'name', { value: name, configurable: true, writable: true });
  Object.defineProperty(type.prototype, KINDS, { value: kinds });
}

define(LockError, 'LockError', 'error');
define(LockRefusedError, 'LockRefusedError', 'refused', 'error');
define(LockTimeoutError, 'LockTimeoutError', 'timeout', 'refused', 'error');
define(LockLostError, 'LockLostError', 'lost', 'error');
define(LockDeadlockError, 'LockDeadlockError', 'deadlock', 'error');
define(LockUnavailableError, 'LockUnavailableError', 'unavailable', 'error');
define(LockDeniedError, 'LockDeniedError', 'denied', 'error');
define(LockNoServerError, 'LockNoServerError', 'no_server', 'error');
define(LockBadArgumentError, 'LockBadArgumentError', 'argument', 'error');
define(LockMisuseError, 'LockMisuseError', 'misuse', 'error');
