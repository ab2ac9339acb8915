/**
 * How attempts wait in the queue: a single one by blocking in pieces on one connection, several with NOTIFY. Where
 * NOTIFY is not available, they block on one of a few connections. A session attempt always blocks, on the connection
 * of its session. Without the module, all wait with NOTIFY, or poll.
 */

import type { LockError } from './errors.js';
import { ConnectionLost, type ReplyError, read, refused } from './failures.js';
import type { Grant } from './hold.js';
import type { Request } from './request.js';
import type { Resources } from './resources.js';
import type { News } from './subscription.js';
import type { Connection } from './wire.js';

const PIECE = 5000;
const LONE_PIECE = 2000;
const SHARED_PIECE = 1000;
export const RESEND = 5000;
export const RESEND_DOWN = 1000;
/** A server whose clock runs a little fast ends a wait a little early. */
const SLACK = 100;

/**
 * The attempt has joined the queue, and waits for news for this many milliseconds; or this server or this user cannot
 * use NOTIFY.
 */
export type Queued = number | 'no notify';

/** The waiting attempt: what it knows, and how it asks the server. */
export interface Asking {
  readonly resources: Resources;
  readonly request: Request;
  readonly id: string;
  connection: Connection | undefined;
  /** Whether it sends its calls over its own connection. */
  usesConnection: boolean;
  /** Whether it is the manager's only wait. */
  isAlone: boolean;
  /** Whether it sends the portable script. */
  readonly isPortable: boolean;
  /** Whether the server may know about it, so it must be cancelled. */
  mayBeQueued: boolean;
  wasQueued: boolean;
  news: News | undefined;
  readonly isGivenUp: boolean;
  readonly left: number;
  throwIfGivenUp(): void;
  unlessGivenUp<T>(work: Promise<T>): Promise<T>;
  timedOut(): LockError;
  ask(wait: number, channel?: undefined, timeout?: number): Promise<Grant | undefined>;
  ask(wait: number, channel: string): Promise<Grant | Queued | undefined>;
  pauseAfter(error: ReplyError | ConnectionLost, isOwn?: boolean): Promise<{ reply: unknown } | undefined>;
  takeConnection(): Promise<void>;
  giveBackConnection(): void;
  leaveQueue(): void;
}

export class Waiting {
  readonly #attempt: Asking;
  readonly #resources: Resources;
  readonly #request: Request;

  constructor(attempt: Asking) {
    this.#attempt = attempt;
    this.#resources = attempt.resources;
    this.#request = attempt.request;
  }

  /**
   * Waits without a connection, and claims the lock when it is notified. undefined: NOTIFY is not available, or the
   * module may be loaded by now.
   */
  async byNotify(): Promise<Grant | undefined> {
    const attempt = this.#attempt;
    const { subscription, blocking, portable } = this.#resources;
    if (!attempt.isPortable) blocking.end();
    const { id } = attempt;
    const news = subscription.register(id, this.#request.key);
    attempt.news = news;
    let message: string | undefined;
    try {
      await subscription.ready(news, Math.min(RESEND_DOWN, attempt.left));
      for (let left = attempt.left; left > 0; left = attempt.left) {
        attempt.throwIfGivenUp();
        // Refused from the start, or since the user lost permission.
        if (subscription.isRefused) {
          if (!attempt.isPortable) this.#resources.notifies = false;
          attempt.leaveQueue();
          return undefined;
        }
        const goesOn = message === 'granted' || !this.#resources.mayBeLoaded;
        if (attempt.isPortable && !(goesOn && portable.queues(this.#request))) return undefined;
        news.forget();
        news.againAt = Infinity;
        const answer = await attempt.ask(left, subscription.channel);
        if (answer === 'no notify') return undefined;
        if (typeof answer === 'number') {
          // The claim came too late: the server skips this channel until a command names it.
          if (message === 'granted') subscription.sendAgain();
          message = await this.#awaitMessage(news, answer);
          continue;
        }
        if (answer) return answer;
        attempt.mayBeQueued = false;
        if (attempt.left > SLACK) throw refused(this.#request.name);
      }
      throw attempt.timedOut();
    } finally {
      subscription.unregister(id);
    }
  }

  /** Returns when it is time to resend the ACQUIRE, with the message that prompted it, if any. */
  async #awaitMessage(news: News, resend: number): Promise<string | undefined> {
    const attempt = this.#attempt;
    const asked = this.#resources.clock.now();
    for (;;) {
      attempt.throwIfGivenUp();
      if (this.#resources.subscription.isRefused) return undefined;
      const after = this.#resources.subscription.isUp ? resend : Math.min(resend, RESEND_DOWN);
      const pause = Math.min(
        asked + after - this.#resources.clock.now(),
        news.againAt - this.#resources.clock.now(),
        attempt.left,
      );
      if (pause <= 0) return undefined;
      const kind = await news.wait(pause);
      if (kind === 'cancelled') {
        attempt.mayBeQueued = false;
        throw refused(this.#request.name);
      }
      if (kind === 'timeout' && attempt.left <= SLACK) {
        attempt.mayBeQueued = false;
        throw attempt.timedOut();
      }
      if (kind !== undefined) return kind;
    }
  }

  /** Waits as the manager's only wait. undefined: there are others. */
  async alone(): Promise<Grant | undefined> {
    const { notifies, blocking } = this.#resources;
    if (!this.#request.wait || this.#request.needsConnection || !notifies || !blocking.enter()) return undefined;
    this.#attempt.isAlone = true;
    try {
      return await this.byBlocking();
    } finally {
      this.#attempt.isAlone = false;
      blocking.leave();
    }
  }

  /** Blocks in pieces: connections are few, and a lost reply is noticed after a piece. undefined: others wait too. */
  async byBlocking(): Promise<Grant | undefined> {
    const attempt = this.#attempt;
    const { blocking } = this.#resources;
    while (attempt.left > 0 && !(attempt.isAlone && blocking.isOver)) {
      const piece = await this.#piece();
      if (!piece) continue;
      attempt.wasQueued = true;
      if (piece.grant) {
        if (await this.#restartLease(piece.grant)) return piece.grant;
      } else if (piece.endedEarly && attempt.left > SLACK) {
        attempt.mayBeQueued = false; // LOCK.CANCEL, or CLIENT UNBLOCK
        throw refused(this.#request.name);
      }
    }
    if (attempt.left <= 0) throw attempt.timedOut();
    return undefined;
  }

  /** Blocks once. undefined: the connection was lost. */
  async #piece(): Promise<{ grant: Grant | undefined; endedEarly: boolean } | undefined> {
    const attempt = this.#attempt;
    const { blocking, connections, timeout } = this.#resources;
    attempt.usesConnection = true;
    try {
      if (attempt.isAlone) attempt.connection ??= blocking.openConnection;
      if (!attempt.connection) await attempt.takeConnection();
      const isCrowded = connections.hasWaiters && !this.#request.options.session;
      const most = attempt.isAlone ? LONE_PIECE : isCrowded ? SHARED_PIECE : PIECE;
      const piece = Math.max(1, Math.min(attempt.left, most));
      const began = this.#resources.clock.now();
      const grant = await attempt.unlessGivenUp(attempt.ask(piece, undefined, piece + timeout));
      return { grant, endedEarly: this.#resources.clock.now() < began + piece - SLACK };
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
      await attempt.pauseAfter(error);
      return undefined;
    } finally {
      attempt.usesConnection = this.#request.needsConnection;
      if (attempt.isGivenUp && !this.#request.options.session) attempt.connection?.close();
      if (!attempt.usesConnection) attempt.giveBackConnection();
    }
  }

  /** The grant may be as old as the call. If the call took a long time, an EXTEND restarts the lease. */
  async #restartLease(grant: Grant): Promise<boolean> {
    const request = this.#request;
    while (this.#resources.clock.now() >= grant.sent + request.lease / 3) {
      const sent = this.#resources.clock.now();
      try {
        const words = request.extend(grant.token, request.lease);
        const reply = await this.#resources.wire.call(request.key, words, this.#resources.timeout);
        grant.sent = sent;
        return reply === 1;
      } catch (error) {
        await this.#attempt.pauseAfter(read(error), false);
      }
    }
    return true;
  }
}
