/** The errors of this package: one class for each kind, with the lock's key in the message and in `key`. */

export class LockError extends Error {
  constructor(
    readonly key: string,
    text: string,
    cause?: unknown,
  ) {
    super(key ? `the lock ${key}: ${text}` : text, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
  }
}

/** Somebody else has the lock; or an operator cancelled the wait. */
export class LockRefused extends LockError {}
/** Somebody else still had the lock when the wait ended. */
export class LockTimeout extends LockRefused {}
/** The lock is not held any more, or not for certain. */
export class LockLost extends LockError {}
/** The wait would close a circle of clients that wait for each other's session locks. */
export class LockDeadlock extends LockError {}
/** The server grants nothing now, or not this: GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM; or it lacks the module. */
export class LockUnavailable extends LockError {}
/** The server does not allow this user the command or the key. */
export class LockDenied extends LockError {}
/** No connection to a server, or no reply in time. */
export class LockNoServer extends LockError {}
/** An argument is wrong; or the key holds something that is no lock. */
export class LockBadArgument extends LockError {}
/** The same lock again within its own scope, a closed manager, a lock released twice. */
export class LockMisuse extends LockError {}
