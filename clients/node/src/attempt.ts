/**
 * One attempt at a lock: sent, waited for, and given up without leaving anything behind. It asks without waiting first,
 * over the application's own client. Only if somebody else has the lock, it joins the queue: alone by blocking in pieces
 * on one connection, beside others by NOTIFY, else by blocking on one of a few connections, else by polling with the portable script.
 */

import { randomInt } from 'node:crypto';
import { now } from './clock.js';
import type { Blocking } from './blocking.js';
import type { Callers } from './callers.js';
import type { Connections } from './connections.js';
import type { Portable } from './portable.js';
import { LockUnavailableError, type LockError } from './errors.js';
import { predecessor, type Grant } from './hold.js';
import { confirm } from './replicas.js';
import type { Request } from './request.js';
import type { News, Subscription } from './subscription.js';
import { ConnectionLost, mayPass, read, refused, ReplyError, timedOut, typed } from './failures.js';
import type { Connection, Reach, Words } from './wire.js';

const PIECE = 5000;
const BLOCKING_PIECE = 2000;
const CROWDED_PIECE = 1000;
const RESEND = 5000;
const RESEND_DOWN = 1000;
/** A server whose clock runs a little ahead ends a wait a little early. */
const SLACK = 100;

/** The attempt has joined the queue; or this server, or this user, cannot wait by NOTIFY. */
type Waiting = 'waiting' | 'no notify';

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)).unref());

/** What an attempt asks of the manager, and shares with its other attempts. */
export interface Parts extends Reach {
  readonly callers: Callers;
  readonly connections: Connections;
  readonly blocking: Blocking;
  readonly subscription: Subscription;
  readonly portable: Portable;
  /** Whether to wait by NOTIFY; and whether that has worked before. */
  notifies: boolean;
  notifyWorks: boolean;
  isPortable: boolean;
  asksForModule(): boolean;
  missModule(error: ReplyError): void;
  cancel(request: Request, id: string, portable: boolean, isReachable: boolean): Promise<void>;
}

export class Attempt {
  readonly id = String(randomInt(1, 2 ** 47) * 1000 + randomInt(0, 1000));
  readonly began = now();
  readonly #deadline: number;
  #tries = 0;
  #connection: Connection | undefined;
  #isPooled = false;
  #isBlocking = false;
  #usesConnection: boolean;
  #mayStand = false;
  #stood = false;
  #isPortable = false;
  #news: News | undefined;
  /** Why nobody waits for it any more, in a box: a reason may be undefined. */
  #over: { reason: unknown } | undefined;
  /** Rejects then. Made when it is asked for: most attempts never wait. */
  #gaveUp: Promise<never> | undefined;
  #reject: ((reason: unknown) => void) | undefined;

  constructor(
    readonly parts: Parts,
    readonly request: Request,
    readonly isBackground = false,
    readonly signal?: AbortSignal,
  ) {
    this.#deadline = this.began + request.wait;
    this.#usesConnection = request.needsConnection;
  }

  /** The caller does not want it any more, or the manager is closed. */
  giveUp(reason: unknown): void {
    this.#over ??= { reason };
    this.#reject?.(reason);
    this.#news?.stir();
  }

  #throwIfOver(): void {
    if (this.#over) throw this.#over.reason;
  }

  /** The grant; rejects with the typed error, or the reason of the signal. */
  async run(): Promise<Grant> {
    let grant: Grant;
    this.signal?.throwIfAborted();
    this.parts.callers.enter(this);
    try {
      if (this.request.needsConnection) await this.#takeConnection();
      grant = await this.#get();
      if (this.request.replicas || this.request.options.fsync)
        await confirm(this.#connection, this.request, this.parts.timeout);
      this.#throwIfOver();
    } catch (error) {
      await this.#abandon(error);
      throw error;
    } finally {
      this.parts.callers.leave(this);
    }
    if (this.request.options.session) {
      grant.connection = this.#connection;
      this.#connection = undefined;
    } else {
      this.#giveBackConnection();
    }
    return grant;
  }

  /** By the module, else by script. The module may be loaded meanwhile: the same ID then goes on with it. */
  async #get(): Promise<Grant> {
    for (let asks = this.parts.asksForModule(); ; asks = true) {
      if (asks) {
        try {
          this.#isPortable = false;
          return await this.#byModule();
        } catch (error) {
          if (!(error instanceof ReplyError && error.isUnknownCommand)) throw error;
          this.parts.missModule(error);
        }
        this.#mayStand = false;
      }
      const grant = await this.#poll();
      if (grant) return grant;
    }
  }

  async #byModule(): Promise<Grant> {
    const { parts, request } = this;
    const alone = parts.blocking.isReady ? await this.#alone() : undefined;
    if (alone) return alone;
    if (request.wait && parts.notifies && parts.subscription.isUp) {
      const grant = await this.#byNotify();
      if (grant) return grant;
    }
    const grant = await this.#ask(0);
    if (grant) return grant;
    if (this.#left() <= 0) {
      this.#mayStand = false; // its place holds nobody up
      throw request.wait ? this.#timedOut() : refused(request.name);
    }
    const grantAlone = await this.#alone();
    if (grantAlone) return grantAlone;
    if (parts.notifies) {
      const notified = await this.#byNotify();
      if (notified) return notified;
    }
    const blocked = await this.#byBlocking();
    if (blocked) return blocked;
    throw this.#timedOut();
  }

  #unlessGivenUp<T>(work: Promise<T>): Promise<T> {
    this.#gaveUp ??= new Promise<never>((_, reject) => {
      this.#reject = reject;
      if (this.#over) reject(this.#over.reason);
    });
    return Promise.race([work, this.#gaveUp]);
  }

  #left(): number {
    return this.#deadline - now();
  }

  /** Sends it, and again after errors that may pass. undefined: nil. */
  #ask(wait: number, channel?: undefined, timeout?: number): Promise<Grant | undefined>;
  #ask(wait: number, channel: string): Promise<Grant | Waiting | undefined>;
  async #ask(wait: number, channel?: string, timeout = this.parts.timeout): Promise<Grant | Waiting | undefined> {
    for (;;) {
      const sent = now();
      let reply: unknown;
      try {
        reply = await this.#exchange(this.request.acquire(this.id, wait, channel), timeout);
      } catch (thrown) {
        const error = read(thrown);
        const isRefusal = error instanceof ReplyError && !error.isUnknownCommand && /^(ERR|NOPERM)$/.test(error.code);
        if (channel !== undefined && isRefusal && !this.parts.notifyWorks) {
          this.parts.notifies = false;
          return 'no notify';
        }
        const late = await this.#pauseAfter(error);
        if (late === undefined) {
          if (wait) wait = Math.max(1, Math.min(wait, this.#left()));
          continue;
        }
        reply = late.reply; // of the first copy
      }
      this.#tries = 0;
      this.parts.isPortable = false;
      if (channel !== undefined && String(reply) === 'WAITING') {
        this.#stood = this.parts.notifyWorks = true;
        return 'waiting';
      }
      return this.#granted(reply, sent);
    }
  }

  #granted(reply: unknown, sent: number): Grant | undefined {
    if (reply === null || reply === undefined) return undefined;
    const grant = { sent, portable: this.#isPortable, connection: undefined };
    if (typeof reply === 'number' && reply > 0) return { token: reply, predecessor: null, ...grant };
    if (Array.isArray(reply) && reply.length === 4 && typeof reply[0] === 'number') {
      return { token: reply[0], predecessor: predecessor(reply), ...grant };
    }
    throw typed(new ReplyError(`ERR the server answered ${JSON.stringify(reply)}`), this.request.name);
  }

  #exchange(words: Words, timeout: number): Promise<unknown> {
    this.#throwIfOver();
    if (this.#usesConnection && !this.#connection?.isOpen)
      return this.#takeConnection().then(() => this.#send(words, timeout));
    return this.#send(words, timeout);
  }

  #send(words: Words, timeout: number): Promise<unknown> {
    this.#mayStand = true;
    if (this.#connection) return this.#connection.call(words, timeout);
    return this.parts.wire.call(this.request.key, words, timeout);
  }

  /**
   * Waits a little before the next copy; throws the typed error if there is to be none. A copy whose reply may still
   * come on a shared connection is awaited: two must never be on their way.
   */
  async #pauseAfter(error: ReplyError | ConnectionLost): Promise<{ reply: unknown } | undefined> {
    this.#tries += 1;
    const { name } = this.request;
    if (error instanceof ReplyError && error.isUnknownCommand) throw error;
    this.#connection?.close();
    if (this.parts.wire.isCluster && (this.#usesConnection || error instanceof ConnectionLost))
      await this.parts.wire.refresh(this.request.key);
    if (error instanceof ReplyError && !this.#stood && this.#tries === 1) this.#mayStand = false;
    if (!mayPass(error)) throw typed(error, name);
    const isPending = error instanceof ConnectionLost && error.settled;
    if (this.#left() <= 0 && (this.request.wait || this.#tries >= 2 || isPending)) {
      throw this.request.wait && error instanceof ReplyError
        ? timedOut(name, now() - this.began, error)
        : typed(error, name);
    }
    if (error instanceof ConnectionLost && error.settled) {
      const late = error.settled.then(
        (reply) => ({ reply }),
        () => undefined,
      );
      const end = sleep(this.#left()).then(() => 'end' as const);
      const what = await this.#unlessGivenUp(Promise.race([late, end]));
      if (what === 'end') throw typed(error, name);
      return what;
    }
    const pause = Math.min(500, 10 * 2 ** Math.min(this.#tries, 6)) * (0.5 + Math.random() / 2);
    await this.#unlessGivenUp(sleep(this.request.wait ? Math.min(pause, this.#left()) : 10));
    return undefined;
  }

  async #byNotify(): Promise<Grant | undefined> {
    const { subscription } = this.parts;
    this.parts.blocking.end();
    const news = (this.#news = subscription.register(this.id, this.request.key));
    let heard: string | undefined;
    try {
      if (!(await subscription.ready(news, Math.min(RESEND_DOWN, this.#left()))) && subscription.refusal) {
        this.parts.notifies = false;
        return undefined;
      }
      let left: number;
      while ((left = this.#left()) > 0) {
        this.#throwIfOver();
        news.forget();
        news.againAt = Infinity;
        const answer = await this.#ask(left, subscription.channel);
        if (answer === 'no notify') return undefined;
        if (answer === 'waiting') {
          // Too late: the server passes this process over until it hears from it.
          if (heard === 'granted') subscription.sendAgain();
          heard = await this.#hear(news);
          continue;
        }
        if (answer) return answer;
        this.#mayStand = false;
        if (this.#left() > SLACK) throw refused(this.request.name);
      }
      throw this.#timedOut();
    } finally {
      subscription.unregister(this.id);
    }
  }

  /** Returns when it is time to send it again: the message that says so, if one does. */
  async #hear(news: News): Promise<string | undefined> {
    const asked = now();
    for (;;) {
      this.#throwIfOver();
      const resend = this.parts.subscription.isUp ? RESEND : RESEND_DOWN;
      const again = Math.min(asked + resend, news.againAt, this.#deadline);
      if (now() >= again) return undefined;
      const kind = await news.wait(again - now());
      if (kind === 'cancelled') {
        this.#mayStand = false;
        throw refused(this.request.name);
      }
      if (kind === 'timeout' && this.#left() <= SLACK) {
        this.#mayStand = false;
        throw this.#timedOut();
      }
      if (kind !== undefined) return kind;
    }
  }

  #timedOut(): LockError {
    return timedOut(this.request.name, now() - this.began);
  }

  /** As the only wait of the manager. undefined: it is not, or no longer. */
  async #alone(): Promise<Grant | undefined> {
    const { parts, request } = this;
    if (!request.wait || request.needsConnection || !parts.notifies || !parts.blocking.enter()) return undefined;
    this.#isBlocking = true;
    try {
      return await this.#byBlocking();
    } finally {
      this.#isBlocking = false;
      parts.blocking.leave();
    }
  }

  /** In pieces: connections are few, and a reply that is lost is noticed after one. undefined: it is not alone any more. */
  async #byBlocking(): Promise<Grant | undefined> {
    const { parts, request } = this;
    while (this.#left() > 0 && !(this.#isBlocking && parts.blocking.isOver)) {
      this.#usesConnection = true;
      let grant: Grant | undefined;
      let began: number;
      let piece: number;
      try {
        if (this.#isBlocking) this.#connection ??= parts.blocking.openConnection;
        if (!this.#connection) await this.#takeConnection();
        const most = this.#isBlocking ? BLOCKING_PIECE : parts.connections.isCrowded ? CROWDED_PIECE : PIECE;
        piece = Math.max(1, Math.min(this.#left(), most));
        began = now();
        grant = await this.#unlessGivenUp(this.#ask(piece, undefined, piece + parts.timeout));
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        await this.#pauseAfter(error);
        continue;
      } finally {
        this.#usesConnection = request.needsConnection;
        if (this.#over) this.#connection?.close();
        if (!this.#usesConnection) this.#giveBackConnection();
      }
      this.#stood = true;
      if (grant) {
        if (await this.#countAnew(grant)) return grant;
      } else if (now() < began + piece - SLACK && this.#left() > SLACK) {
        this.#mayStand = false; // LOCK.CANCEL, or CLIENT UNBLOCK
        throw refused(request.name);
      }
    }
    if (this.#left() <= 0) throw this.#timedOut();
    return undefined;
  }

  /** The grant may be as old as the call. If that is long, its lease counts from an EXTEND. */
  async #countAnew(grant: Grant): Promise<boolean> {
    while (now() >= grant.sent + this.request.lease / 3) {
      const sent = now();
      try {
        const words = this.request.extend(grant.token, this.request.lease);
        const reply = await this.parts.wire.call(this.request.key, words, this.parts.timeout);
        grant.sent = sent;
        return reply === 1;
      } catch (error) {
        await this.#pauseAfter(read(error));
      }
    }
    return true;
  }

  /** undefined: it is time to ask for the module again. */
  async #poll(): Promise<Grant | undefined> {
    const { request, parts } = this;
    if (request.needsModule) {
      throw new LockUnavailableError(request.name, `${request.needsModule} needs the module, which is not loaded`);
    }
    this.#isPortable = true;
    for (;;) {
      this.#throwIfOver();
      const sent = now();
      let reply: unknown;
      try {
        this.#mayStand = true;
        reply = await parts.portable.acquire(request, this.id);
      } catch (error) {
        await this.#pauseAfter(read(error));
        continue;
      }
      this.#tries = 0;
      const grant = this.#granted(reply, sent);
      if (grant) return grant;
      this.#mayStand = false;
      if (this.#left() <= 0) throw request.wait ? this.#timedOut() : refused(request.name);
      await this.#unlessGivenUp(sleep(Math.min(50 + Math.random() * 100, this.#left())));
      if (parts.asksForModule()) return undefined;
    }
  }

  /** A connection for the whole attempt: its own for a session, one of the few for WAIT. */
  async #takeConnection(): Promise<void> {
    const { parts, request } = this;
    this.#giveBackConnection();
    if (request.options.session) {
      this.#connection = await parts.wire.connect(request.key, parts.timeout);
      return;
    }
    if (this.#isBlocking) {
      this.#connection = await parts.blocking.open(request.key);
      return;
    }
    this.#connection = await parts.connections.take(request.key, request.wait ? this.#left() : parts.timeout, (turn) =>
      this.#unlessGivenUp(turn),
    );
    if (!this.#connection) this.#throwIfOver();
    if (!this.#connection)
      throw request.wait ? this.#timedOut() : new ConnectionLost(new Error('no connection came free'));
    this.#isPooled = true;
    this.#throwIfOver();
  }

  #giveBackConnection(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    if (connection && this.#isPooled) this.parts.connections.giveBack(connection);
    else if (!this.#isBlocking) connection?.close();
    this.#isPooled = false;
  }

  /** Leaves the queue, and gives back what was granted without its being known. */
  async #abandon(error: unknown): Promise<void> {
    // A reply that is on its way must not be read as that to another call.
    if (this.#over) this.#connection?.close();
    this.#giveBackConnection();
    if (!this.#mayStand) return;
    const cause = error instanceof Error ? error.cause : undefined;
    const isReachable = !(error instanceof ConnectionLost || cause instanceof ConnectionLost);
    await this.parts.cancel(this.request, this.id, this.#isPortable, isReachable);
  }
}
