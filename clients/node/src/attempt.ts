/**
 * One attempt at a lock: sent, waited for, and given up without leaving anything behind. It first asks without waiting,
 * through the application's own client. If somebody else has the lock, it joins the queue (`waiting`). If the script
 * has no queue to wait in, the attempt polls. An attempt for a session lock asks and waits on its session's connection.
 */

import { randomInt } from 'node:crypto';
import { pause } from './clock.js';
import { COMMANDS } from './commands.js';
import { type LockError, LockUnavailableError } from './errors.js';
import { ConnectionLost, isTransient, ReplyError, read, refused, timedOut, typed } from './failures.js';
import type { Form } from './form.js';
import { type Grant, predecessor } from './hold.js';
import { confirm } from './replicas.js';
import type { Request } from './request.js';
import type { Resources } from './resources.js';
import { Lookout, Resolved } from './results.js';
import type { SessionConnection } from './sessions.js';
import type { News } from './subscription.js';
import { type Asking, type Queued, RESEND, RESEND_DOWN, Waiting } from './waiting.js';
import { type Connection, fieldsOf, type Words } from './wire.js';

/** The pause of an attempt that polls, in milliseconds. */
const pollPause = (): number => 50 + Math.random() * 100;

/** How many milliseconds a queued attempt waits for news. undefined: it is a different reply. */
function placeOf(reply: unknown): number | undefined {
  const [first, ms] = Array.isArray(reply) && reply.length === 2 ? reply : [reply, RESEND];
  return String(first) === 'WAITING' ? Number(ms) : undefined;
}

/** After these replies, a session leaves its connection to its other locks. */
const MOVED = new Set(['ASK', 'CLUSTERDOWN', 'MOVED', 'TRYAGAIN']);
/** After these, it ends. */
const ROLE_CHANGED = new Set(['LOADING', 'MASTERDOWN', 'READONLY', 'UNBLOCKED']);

const newId = (): string => String(randomInt(1, 2 ** 47) * 1000 + randomInt(0, 1000));

export class Attempt implements Asking {
  id = newId();
  connection: Connection | undefined;
  usesConnection: boolean;
  isAlone = false;
  form: Form = COMMANDS;
  mayBeQueued = false;
  wasQueued = false;
  /** It is in the script's queue. */
  #hasPlace = false;
  news: News | undefined;
  readonly #deadline: number;
  /** Whose connection it is. */
  #session: SessionConnection | undefined;
  #waiting: Waiting | undefined;
  #tries = 0;
  #isPooled = false;
  #isOnItsWay = false;
  /** A copy was never answered, and its connection was closed. */
  #mayStillRun = false;
  /** Why the caller no longer wants the lock. In a box, because a reason may be undefined. */
  #over: { reason: unknown } | undefined;
  /** Rejects when the attempt is given up. Created only for attempts that wait. */
  #gaveUp: Promise<never> | undefined;
  #reject: ((reason: unknown) => void) | undefined;
  readonly #lookout: Lookout | undefined;

  constructor(
    readonly resources: Resources,
    readonly request: Request,
    readonly isBackground = false,
    readonly signal?: AbortSignal,
    /** When its caller began to wait. */
    readonly began = resources.clock.now(),
  ) {
    this.#deadline = began + request.wait;
    this.usesConnection = request.needsConnection;
    if (request.takesResult) this.#lookout = new Lookout(resources, request);
  }

  /** Called when the caller no longer wants the lock, or the manager is closed. */
  giveUp(reason: unknown): void {
    this.#over ??= { reason };
    this.#reject?.(reason);
    this.news?.stir();
  }

  throwIfGivenUp(): void {
    if (this.#over) throw this.#over.reason;
  }

  /** Resolves to the grant; rejects with the typed error, with the signal's reason, or with Resolved. */
  async run(): Promise<Grant> {
    let grant: Grant;
    this.signal?.throwIfAborted();
    this.resources.callers.enter(this);
    try {
      // A lease that begins before may end before, on a busy machine.
      if (this.resources.starting && !this.isBackground) await this.unlessGivenUp(this.resources.starting);
      if (this.request.needsConnection) await this.takeConnection();
      grant = await this.#get();
      if (this.#lookout) await this.unlessGivenUp(this.#lookout.lookAgain());
      if (this.request.replicas || this.request.options.fsync)
        await confirm(this.connection, this.request, this.resources.timeout);
      this.throwIfGivenUp();
    } catch (error) {
      await this.#abandon(error);
      throw error;
    } finally {
      this.resources.callers.leave(this);
    }
    grant.session = this.#session;
    if (!grant.session) this.giveBackConnection();
    return grant;
  }

  /** Created on demand: most attempts never wait. */
  get #waits(): Waiting {
    this.#waiting ??= new Waiting(this);
    return this.#waiting;
  }

  get isPortable(): boolean {
    return this.form !== COMMANDS;
  }

  /** Uses LOCK.*, or the script while the module is not loaded. This can change at any time; the ID stays the same. */
  async #get(): Promise<Grant> {
    for (;;) {
      if (this.resources.asksForModule()) {
        const hasPlace = this.mayBeQueued;
        try {
          this.form = COMMANDS;
          return await this.#byCommands();
        } catch (error) {
          if (!(error instanceof ReplyError && error.isUnknownCommand)) throw error;
          this.resources.missModule(error);
        }
        this.mayBeQueued = hasPlace; // that is, in the script's queue
      }
      const grant = await this.#byScript();
      if (grant) return grant;
    }
  }

  /** undefined: ask again, perhaps the module. */
  async #byScript(): Promise<Grant | undefined> {
    const { request, resources } = this;
    if (request.needsModule) throw new LockUnavailableError(request.name, request.needsModule);
    this.form = resources.portable;
    const queues = request.wait > 0 && resources.portable.queues(request);
    if (!queues || !(this.wasQueued || resources.subscription.isUp)) {
      const grant = await this.ask(0);
      if (grant) return grant;
      this.mayBeQueued = this.wasQueued || this.#mayStillRun;
      if (this.left <= 0) throw request.wait ? this.timedOut() : await this.#refused();
    }
    if (queues) return this.#waits.byNotify();
    await this.unlessGivenUp(pause(this.resources.clock, Math.min(pollPause(), this.left)));
    return undefined;
  }

  async #byCommands(): Promise<Grant> {
    const { resources, request } = this;
    // The server must see the wait on the connection that has the session's other locks.
    if (request.wait && request.options.session) {
      const got = await this.#waits.byBlocking();
      if (got) return got;
      throw this.timedOut();
    }
    let grant = resources.blocking.isReady ? await this.#waits.alone() : undefined;
    if (!grant && request.wait && resources.notifies && resources.subscription.isUp)
      grant = await this.#waits.byNotify();
    // The server keeps no result for the place of an attempt whose last copy had no RESULT.
    const isFirst = !(this.mayBeQueued && request.takesResult);
    if (isFirst) grant ??= await this.ask(0);
    if (grant) return grant;
    if (this.left <= 0) {
      if (isFirst) this.mayBeQueued = false; // it has no place in the queue
      throw request.wait ? this.timedOut() : await this.#refused();
    }
    grant = await this.#waits.alone();
    if (!grant && resources.notifies) grant = await this.#waits.byNotify();
    grant ??= await this.#waits.byBlocking();
    if (grant) return grant;
    throw this.timedOut();
  }

  unlessGivenUp<T>(work: Promise<T>): Promise<T> {
    this.#gaveUp ??= new Promise<never>((_, reject) => {
      this.#reject = reject;
      if (this.#over) reject(this.#over.reason);
    });
    return Promise.race([work, this.#gaveUp]);
  }

  get isGivenUp(): boolean {
    return this.#over !== undefined;
  }

  get left(): number {
    return this.#deadline - this.resources.clock.now();
  }

  /** A release with the script removes attempts whose channel has no subscriber, so they join its queue only later. */
  get #joinsLater(): boolean {
    return this.isPortable && !this.resources.subscription.isUp && !this.#hasPlace;
  }

  /** Sends the ACQUIRE, and resends it after temporary errors. undefined: nil. */
  ask(wait: number, channel?: undefined, timeout?: number): Promise<Grant | undefined>;
  ask(wait: number, channel: string): Promise<Grant | Queued | undefined>;
  async ask(wait: number, channel?: string, timeout = this.resources.timeout): Promise<Grant | Queued | undefined> {
    const send = (words: Words): Promise<unknown> => this.#exchange(words, timeout);
    for (;;) {
      const sent = this.resources.clock.now();
      let reply: unknown;
      const isEarly = channel !== undefined && this.#joinsLater;
      const joins = isEarly ? undefined : channel;
      this.#isOnItsWay = false;
      try {
        reply = await this.form.acquire(this.request, this.id, isEarly ? 0 : wait, joins, send);
      } catch (thrown) {
        const error = read(thrown);
        const isRefusal = error instanceof ReplyError && !error.isUnknownCommand && /^(ERR|NOPERM)$/.test(error.code);
        if (channel !== undefined && isRefusal && !this.isPortable && !this.resources.notifyWorks) {
          this.resources.notifies = false;
          return 'no notify';
        }
        const before = this.#mayStillRun;
        if (error instanceof ConnectionLost) this.#mayStillRun ||= this.#isOnItsWay;
        this.throwIfGivenUp();
        const late = await this.pauseAfter(error);
        if (late) this.#mayStillRun = before;
        if (late === undefined) {
          if (wait) wait = Math.max(1, Math.min(wait, this.left));
          continue;
        }
        reply = late.reply; // to the first copy
      }
      this.#tries = 0; // pauses are short again
      const place = joins === undefined ? undefined : placeOf(reply);
      if (place !== undefined) this.wasQueued = true;
      if (place !== undefined && this.isPortable) this.#hasPlace = true;
      if (!this.isPortable) {
        this.resources.isPortable = false;
        if (place !== undefined) this.resources.notifyWorks = true;
      }
      // Without a place, it was sent with the lock alone, or before the subscription was up.
      const polls = this.isPortable && channel !== undefined && (reply === null || reply === undefined);
      if (polls && isEarly) this.mayBeQueued = this.wasQueued || this.#mayStillRun;
      const untilNext = isEarly ? RESEND_DOWN : pollPause();
      const answer = polls ? untilNext : (place ?? this.#granted(reply, sent));
      if (this.#lookout && this.isPortable && typeof answer !== 'object')
        await this.unlessGivenUp(this.#lookout.look());
      return answer;
    }
  }

  #granted(reply: unknown, sent: number): Grant | undefined {
    if (reply === null || reply === undefined) return undefined;
    const grant = { sent, form: this.form, session: undefined };
    if (typeof reply === 'number' && reply > 0) return { token: reply, predecessor: null, ...grant };
    if (Array.isArray(reply) && reply.length === 4 && typeof reply[0] === 'number') {
      return { token: reply[0], predecessor: predecessor(reply), ...grant };
    }
    if (!this.isPortable && Array.isArray(reply) && reply.length === 1 && Buffer.isBuffer(reply[0])) {
      this.mayBeQueued = false; // it has ended
      throw new Resolved(reply[0]);
    }
    throw typed(new ReplyError(`ERR the server answered ${JSON.stringify(reply)}`), this.request.name);
  }

  #exchange(words: Words, timeout: number): Promise<unknown> {
    this.throwIfGivenUp();
    if (this.usesConnection && !this.connection?.isOpen)
      return this.takeConnection().then(() => this.#send(words, timeout));
    return this.#send(words, timeout);
  }

  #send(words: Words, timeout: number): Promise<unknown> {
    this.mayBeQueued = this.#isOnItsWay = true;
    const own = this.#session ?? this.connection;
    const { request, resources } = this;
    if (own) return own.call(words, timeout, request.takesResult);
    return resources.wire.call(request.key, words, timeout, request.takesResult);
  }

  /**
   * Waits a little before the next copy; throws the typed error if there will not be one. A copy whose reply may still
   * arrive on a shared connection is awaited, because two copies must never be in flight. `isOwn`: whether the error
   * came over the attempt's own connection, if it has one.
   */
  async pauseAfter(error: ReplyError | ConnectionLost, isOwn = true): Promise<{ reply: unknown } | undefined> {
    const { name } = this.request;
    if (error instanceof ReplyError && error.isUnknownCommand) throw error;
    this.#tries += 1;
    if (isOwn) this.#leaveConnection(error);
    if (this.resources.wire.isCluster && (this.usesConnection || error instanceof ConnectionLost))
      await this.resources.wire.refresh(this.request.key);
    if (error instanceof ReplyError && !this.wasQueued && this.#tries === 1) this.mayBeQueued = false;
    if (!isTransient(error)) throw typed(error, name);
    const isPending = error instanceof ConnectionLost && error.settled;
    if (this.left <= 0 && (this.request.wait || this.#tries >= 2 || isPending)) {
      throw this.request.wait && error instanceof ReplyError
        ? timedOut(name, this.resources.clock.now() - this.began, error)
        : typed(error, name);
    }
    if (error instanceof ConnectionLost && error.settled) {
      const late = error.settled.then(
        (reply) => ({ reply }),
        () => undefined,
      );
      const end = pause(this.resources.clock, this.left).then(() => 'end' as const);
      const what = await this.unlessGivenUp(Promise.race([late, end]));
      if (what === 'end') throw typed(error, name);
      return what;
    }
    const delay = Math.min(500, 10 * 2 ** Math.min(this.#tries, 6)) * (0.5 + Math.random() / 2);
    await this.unlessGivenUp(pause(this.resources.clock, this.request.wait ? Math.min(delay, this.left) : 10));
    return undefined;
  }

  /** The key may have moved to another server. A session's connection may have other locks. */
  #leaveConnection(error: ReplyError | ConnectionLost): void {
    const code = error instanceof ReplyError ? error.code : '';
    if (!this.#session || ROLE_CHANGED.has(code)) this.connection?.close();
    else if (MOVED.has(code)) this.giveBackConnection();
  }

  timedOut(): LockError {
    return timedOut(this.request.name, this.resources.clock.now() - this.began);
  }

  /** The error of an attempt without a wait. After a RECOVER, it says whether the lock is free. */
  async #refused(): Promise<LockError> {
    const { request, resources } = this;
    if (!request.recover) return refused(request.name);
    const send = (words: Words): Promise<unknown> => resources.wire.call(request.key, words, resources.timeout);
    // This user may not be allowed to ask.
    const reply = await this.unlessGivenUp(this.form.info(request, send).catch(() => undefined));
    return refused(request.name, String(fieldsOf(reply).get('state')) === 'free');
  }

  /** A connection for the whole attempt: that of its session, or one of the few shared ones for WAIT. */
  async takeConnection(): Promise<void> {
    const { resources, request } = this;
    this.giveBackConnection();
    if (request.options.session) {
      const session = await resources.sessions.take(request.key, request.group, this.isBackground);
      if (this.#over) resources.sessions.giveBack(session);
      this.throwIfGivenUp();
      this.#session = session;
      this.connection = session.connection;
      return;
    }
    if (this.isAlone) {
      this.connection = await resources.blocking.open(request.key);
      return;
    }
    this.connection = await resources.connections.take(
      request.key,
      request.wait ? this.left : resources.timeout,
      (turn) => this.unlessGivenUp(turn),
    );
    if (!this.connection) this.throwIfGivenUp();
    if (!this.connection)
      throw request.wait ? this.timedOut() : new ConnectionLost(new Error('no connection came free'));
    this.#isPooled = true;
    this.throwIfGivenUp();
  }

  giveBackConnection(): void {
    const [connection, session] = [this.connection, this.#session];
    this.connection = this.#session = undefined;
    if (session) this.resources.sessions.giveBack(session);
    else if (connection && this.#isPooled) this.resources.connections.giveBack(connection);
    else if (!this.isAlone) connection?.close();
    this.#isPooled = false;
  }

  /**
   * Gives up the place in the script's queue, in the background. A late cancel must not release a lock that the attempt
   * gets by polling, so the attempt continues with a new ID. A place in the module's queue is kept.
   */
  leaveQueue(): void {
    if (!this.isPortable || !this.mayBeQueued) return;
    void this.resources.cancel(this.request, this.id, this.form, false, this.#mayStillRun);
    this.id = newId();
    this.mayBeQueued = this.wasQueued = this.#hasPlace = this.#mayStillRun = false;
  }

  /** Leaves the queue, and releases a grant that the attempt may not know about. */
  async #abandon(error: unknown): Promise<void> {
    // A reply in flight must not be read as the reply to another call. A session waits for it before the next call.
    if (this.#over && !this.#session) this.connection?.close();
    this.giveBackConnection();
    if (!this.mayBeQueued) return;
    const cause = error instanceof Error ? error.cause : undefined;
    const isReachable = !(error instanceof ConnectionLost || cause instanceof ConnectionLost);
    await this.resources.cancel(this.request, this.id, this.form, isReachable, this.#mayStillRun);
  }
}
