// One attempt at a lock: what is sent, and what the answers mean. Knows no connection.
import { randomBytes } from 'node:crypto';

const ifOurs = (call) => `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(${call}) end `;
const EXTEND = ifOurs("'PEXPIRE', KEYS[1], ARGV[2]");
const RELEASE = `${ifOurs("'DEL', KEYS[1]")}return 0`;
const PLAIN = {
  ACQUIRE: `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end ${EXTEND}`,
  EXTEND: `${EXTEND}return 0`,
  RELEASE,
  CANCEL: RELEASE,
};

/** What is thrown here. Where the server cannot be reached, it is what node-redis throws, or a TimeoutError. */
export class LockError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** Somebody else has the lock, after the wait if any; or an operator ended the wait. */
export class LockRefused extends LockError {}

/** The lock is not held any more, or not for certain. */
export class LockLost extends LockError {}

/** The server does not know LOCK.*, and the fallback is off. */
export class LockUnsupported extends LockError {}

/** The server answered what no LOCK.* command answers. */
export class LockReply extends LockError {}

/** Whether to connect anew, perhaps to a new master. An error that the server answers opens with a code word. */
export function isBroken(error) {
  return !/^[A-Z]+ /.test(error.message) || /^(READONLY|LOADING) /.test(error.message);
}

/** Whether the same command may succeed later: the server, or its part as master, is changing. */
export function mayPass(error) {
  if (error instanceof LockError || error instanceof TypeError) return false;
  return isBroken(error) || /^(UNBLOCKED|NOREPLICAS) /.test(error.message);
}

/** The ID is chosen here, once, and sent with each command of the attempt. */
export class Attempt {
  token = null;
  isPlain = false;
  #id = String((randomBytes(8).readBigUInt64BE() % 10n ** 18n) + 1n);
  #leaseMs;
  #options;
  #fallback;

  constructor(key, { leaseMs, owner, session, fallback }) {
    this.key = key;
    this.#leaseMs = String(Math.round(leaseMs));
    this.#options = [...(owner ? ['OWNER', owner] : []), ...(session ? ['SESSION'] : [])];
    this.#fallback = fallback;
  }

  /** The words of LOCK.<name>, or of the script that stands for it. */
  command(name, pieceMs) {
    if (this.isPlain) {
      // Letters in the value: to the module this is no timestamp, so never expired.
      return ['EVAL', PLAIN[name], '1', this.key, `id:${this.#id}`, this.#leaseMs];
    }
    const lease = ['PX', this.#leaseMs];
    const words = {
      ACQUIRE: [...lease, 'WAIT', String(Math.round(pieceMs)), 'ID', this.#id, ...this.#options],
      EXTEND: [String(this.token), ...lease],
      RELEASE: [String(this.token)],
      CANCEL: [this.#id],
    };
    return [`LOCK.${name}`, this.key, ...words[name]];
  }

  /** The reply if it is one of this command: null or an integer; keeps the token. */
  read(name, reply) {
    if (name !== 'ACQUIRE') {
      if ([-1, 0, 1].includes(reply)) return reply;
    } else if (reply === null || (Number.isSafeInteger(reply) && reply > 0)) {
      this.token = this.isPlain ? null : reply;
      return reply;
    }
    throw new LockReply(`LOCK.${name} of the lock '${this.key}' was answered ${JSON.stringify(reply)}`);
  }

  /** Throws unless the command can be sent again, as its fallback. */
  fallBack(name, error) {
    if (this.isPlain || !error.message.includes('unknown command')) throw error;
    if (name !== 'ACQUIRE' || !this.#fallback) {
      throw new LockUnsupported(`the lock '${this.key}': the server does not know LOCK.*`, { cause: error });
    }
    const text = `the lock '${this.key}' is held by SET NX PX, without order and token: ${error.message}`;
    process.emitWarning(text, 'LockFallbackWarning');
    this.isPlain = true;
  }

  /** The error that says so. */
  lost(why, cause) {
    const because = cause ? `: ${cause.message || cause.code}` : '';
    return new LockLost(`the lock '${this.key}' is lost: ${why}${because}`, { cause });
  }

  /** The error that says so. */
  refused() {
    return new LockRefused(`somebody else has the lock '${this.key}'`);
  }
}
