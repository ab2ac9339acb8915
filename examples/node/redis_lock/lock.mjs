// A lock that is held: it is renewed, and given back or lost.
import { setTimeout as sleep } from 'node:timers/promises';
import { Attempt, LockError, isBroken, mayPass } from './attempt.mjs';
import { Channel } from './connection.mjs';
import { acquire } from './line.mjs';

const now = () => performance.now();

export class Lock {
  #attempt;
  #channel;
  #leaseMs;
  #timeoutMs;
  #session;
  #until;
  #renewal;
  #released;
  #losing = new AbortController();
  #releasing = new AbortController();

  /** Throws LockRefused when somebody else has the lock. `signal` ends the wait. With `session` the lock ends with its
   * connection. With `fallback` a server without the module gets SET NX PX instead: no order among those who wait, and
   * no token (null). `prefix` stands before the key; if it is not given, the keyPrefix of the client does. */
  static async acquire(client, key, options) {
    const lock = new Lock(client, key, options);
    const { waitMs = 0, signal } = options;
    const wanted = { waitMs, signal, timeoutMs: lock.#timeoutMs, leaseMs: lock.#leaseMs };
    lock.#until = (await acquire(lock.#channel, lock.#attempt, wanted)) + lock.#leaseMs;
    lock.#renewal = lock.#renew();
    return lock;
  }

  /** For `acquire`. */
  constructor(client, key, options) {
    const { leaseMs, timeoutMs = 5_000, session = false, prefix = client.options.keyPrefix ?? '' } = options;
    if (!(leaseMs >= 1)) throw new TypeError('leaseMs is not a number of milliseconds');
    this.#leaseMs = leaseMs;
    this.#timeoutMs = Math.min(timeoutMs, leaseMs / 4); // a renewal can fail and the next still be in time
    this.#session = session;
    this.#attempt = new Attempt(`${prefix}${key}`, options);
    this.#channel = new Channel(client, this.#attempt, this.#timeoutMs, (error) => {
      if (session && this.#renewal) this.#lose('its session has ended', error);
    });
  }

  /** The fencing token; null under the fallback. */
  get token() {
    return this.#attempt.token;
  }

  /** Aborted when the lock is lost; the reason is LockLost. */
  get signal() {
    return this.#losing.signal;
  }

  /** How many milliseconds of the lease are left, by the clock of this side. */
  leftMs() {
    return Math.max(0, this.#until - now());
  }

  /** Gives the lock back. Throws LockLost if it was not held to the end. Called again, it gives the same answer. */
  release() {
    this.#released ??= this.#end();
    return this.#released;
  }

  async #end() {
    this.#releasing.abort();
    await this.#renewal;
    try {
      await this.#giveBack();
    } catch (error) {
      throw this.signal.reason ?? error;
    } finally {
      this.#channel.disconnect();
    }
    this.signal.throwIfAborted();
  }

  async #giveBack() {
    const end = now() + this.#timeoutMs;
    for (let resent = false; ; resent = true) {
      try {
        const reply = await this.#channel.exchange('RELEASE');
        // Sent again, it finds the lock released already: 0.
        if (reply === 1 || (reply === 0 && resent && this.leftMs() > 0)) return;
        throw this.#attempt.lost('it was over before it was released');
      } catch (error) {
        if (this.signal.aborted || !mayPass(error) || (resent && now() > end)) throw error;
        this.#channel.disconnect();
        await sleep(50);
      }
    }
  }

  async #renew() {
    const restMs = () => this.#until - this.#leaseMs / 10 - now();
    let [pause, cause] = [this.#leaseMs / 3];
    for (;;) {
      await sleep(Math.max(Math.min(pause, restMs()), 0), null, this.#releasing).catch(() => {});
      if (this.#releasing.signal.aborted || this.signal.aborted) return;
      const [sent, rest] = [now(), restMs()];
      if (rest <= 0) return this.#lose('its lease was not renewed', cause);
      try {
        const reply = await this.#channel.exchange('EXTEND', 0, Math.min(rest, this.#timeoutMs));
        if (reply !== 1) return this.#lose('it was taken away');
        [this.#until, pause, cause] = [sent + this.#leaseMs, this.#leaseMs / 3];
      } catch (error) {
        [pause, cause] = [this.#leaseMs / 20, error];
        if (!isBroken(error) && !(error instanceof LockError)) continue;
        if (this.#session) return this.#lose('its session has ended', error);
        this.#channel.disconnect();
      }
    }
  }

  #lose(why, cause) {
    if (!this.#releasing.signal.aborted) this.#losing.abort(this.#attempt.lost(why, cause));
  }
}

// For `await using`.
if (Symbol.asyncDispose) Lock.prototype[Symbol.asyncDispose] = Lock.prototype.release;
