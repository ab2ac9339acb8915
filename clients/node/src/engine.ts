/** What a manager does: attempts, renewal, release, and background work. */

import { AsyncLocalStorage } from 'node:async_hooks';
import { Attempt } from './attempt.js';
import { Blocking } from './blocking.js';
import { Callers } from './callers.js';
import type { Clock } from './clock.js';
import { COMMANDS } from './commands.js';
import { Connections } from './connections.js';
import { LockBadArgumentError, type LockLostError, LockMisuseError } from './errors.js';
import { ConnectionLost, ReplyError, read, typed } from './failures.js';
import { Flights } from './flights.js';
import type { Form, Send } from './form.js';
import { Held, kept } from './hold.js';
import { HookCalls } from './hooks.js';
import { Keeping } from './keeping.js';
import { TAKEN } from './lease.js';
import type { Hooks, LockOptions } from './options.js';
import { MARGIN, Portable } from './portable.js';
import { Releasing } from './releasing.js';
import { Timer } from './renewal.js';
import type { ClientOptions } from './renewal-client.js';
import { RenewalThread } from './renewal-thread.js';
import type { Request } from './request.js';
import { Resolved } from './results.js';
import { ServerClock } from './server-clock.js';
import { Sessions } from './sessions.js';
import { Subscription } from './subscription.js';
import type { Wire, Word, Words } from './wire.js';

export interface Settings {
  timeout: number;
  portable: boolean;
  warnWithoutModule: boolean;
  hooks: Hooks;
  warn: ((text: string) => void) | undefined;
}

const ASK_FOR_MODULE = 5000;
/** How long a copy of a command may still run after its connection was closed. */
const STILL_RUNS = 2000;

export class Engine {
  readonly timeout: number;
  readonly clock: Clock;
  readonly timer: Timer<Held>;
  readonly subscription: Subscription;
  readonly connections: Connections;
  readonly blocking: Blocking;
  readonly sessions: Sessions;
  readonly portable: Portable;
  readonly serverClock: ServerClock;
  readonly flights: Flights;
  readonly #hooks: HookCalls;
  readonly #keeping: Keeping;
  readonly #releasing: Releasing;
  readonly #thread: RenewalThread | undefined;
  /** The holds of the scopes around the running call. Code started in a scope may outlive it. */
  readonly #scopes = new AsyncLocalStorage<readonly Held[]>();
  readonly callers = new Callers();
  isClosed = false;
  notifies = true;
  notifyWorks = false;
  /** Whether LOCK.* was unknown to the server when last tried. */
  isPortable = false;
  #askForModule = 0;
  #hasWarned = false;
  /** A call over the application's connection that got no reply in time, until it gets one or the connection ends. */
  #overdue: Promise<unknown> | undefined;

  constructor(
    readonly wire: Wire,
    readonly options: Settings,
    /** The client of a thread that renews, if one does. */
    forThread?: ClientOptions,
  ) {
    this.timeout = options.timeout;
    this.clock = wire.clock;
    const reach = { wire, timeout: options.timeout, clock: wire.clock };
    this.#hooks = new HookCalls(options.hooks, wire.clock, (call) => this.callBack(call));
    this.timer = new Timer(this);
    this.subscription = new Subscription(reach, (text) => this.warn(text));
    this.connections = new Connections(reach);
    this.blocking = new Blocking(reach);
    this.sessions = new Sessions(reach, () => this.#scopes.getStore() ?? []);
    this.portable = new Portable(reach, this.subscription);
    this.serverClock = new ServerClock(reach);
    this.#keeping = new Keeping(this, STILL_RUNS);
    this.#releasing = new Releasing(this);
    this.flights = new Flights(wire.clock);
    if (forThread) this.#thread = new RenewalThread(this, forThread);
  }

  /** A lock that a thread renews must end at some point, even if the loop hangs. */
  checkRenewal(request: Request): void {
    if (!this.#thread || request.maxHold < Infinity) return;
    const why = 'renewed in a thread, a loop that hangs would hold the lock forever';
    throw new LockBadArgumentError(request.name, `maxHold is missing: ${why}`);
  }

  get starting(): Promise<void> | undefined {
    return this.#thread?.starting;
  }

  warn(text: string): void {
    this.callBack(() => this.options.warn?.(text));
  }

  /** Calls the application's code. Its errors must neither cost a lock nor hide a loss. */
  callBack(call: () => unknown): void {
    const failed = (error: unknown): void =>
      process.emitWarning(`a serverlock hook or callback failed: ${String(error)}`);
    try {
      const result = call();
      if (result instanceof Promise) result.catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /**
   * Runs the work in a scope of that hold, and returns its result. `end` ends the hold of work that has succeeded, and
   * resolves to whether the lock was held to the end.
   */
  async within<T>(held: Held, work: () => T | Promise<T>, end: () => Promise<boolean>): Promise<T> {
    // Scopes whose holds have ended are dropped, so that they do not pile up.
    const around = (this.#scopes.getStore() ?? []).filter((one) => one.isHeld);
    let result: T;
    try {
      result = await kept(held, () => this.#scopes.run([...around, held], work));
    } catch (error) {
      if (!held._ended) await this.release(held, true).catch(() => false);
      throw this.#lossOr(held, error);
    }
    if (!held._ended && !(await end())) throw held.lost ?? held._over();
    return result;
  }

  /** Runs the work in an inner scope of a hold. The outermost one releases the lock. */
  async withinAgain<T>(held: Held, work: () => T | Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await work();
    } catch (error) {
      throw this.#lossOr(held, error);
    }
    if (held.lost) throw held.lost;
    return result;
  }

  /** What the caller gets: the work's error, unless it comes from the hold's own signal. */
  #lossOr(held: Held, error: unknown): unknown {
    const isOurs = held.signal.aborted && (error === held.signal.reason || (error as Error)?.name === 'AbortError');
    return isOurs ? (held.lost ?? error) : error;
  }

  /** The hold that this caller already has in a scope around this call, and gets again. Throws if it may not ask. */
  reentered(request: Request): Held | undefined {
    if (this.isClosed) throw new LockMisuseError(request.name, 'its manager is closed');
    for (const held of this.#scopes.getStore() ?? []) {
      const isAgain = request.reentrant && held._isReentrant && request.isSameLock(held._request);
      if (!(isAgain || held._request.excludes(request)) || !held.isHeld) continue;
      if (isAgain) return held;
      throw new LockMisuseError(request.name, 'this caller already holds it, in a scope around this call');
    }
    return undefined;
  }

  /**
   * `began`: when the caller began to wait, if that was earlier. Rejects with the typed error, with the signal's
   * reason, or with Resolved.
   */
  async acquire(request: Request, signal?: AbortSignal, isBackground = false, began?: number): Promise<Held> {
    const outer = this.reentered(request);
    if (outer) {
      signal?.throwIfAborted();
      outer._entries += 1;
      return outer;
    }
    const attempt = new Attempt(this, request, isBackground, signal, began);
    let held: Held;
    try {
      const grant = await attempt.run();
      held = Held._of(this, request, grant, attempt.began);
      if (grant.session) this.sessions.join(held, grant.session);
    } catch (thrown) {
      if (thrown instanceof Resolved) {
        this.#hooks.result(request, attempt.began, attempt.isPortable);
        throw thrown;
      }
      const isOurs = thrown instanceof ReplyError || thrown instanceof ConnectionLost;
      const error = isOurs ? typed(thrown, request.name) : thrown;
      this.#hooks.failed(request, attempt.began, attempt.isPortable, error, signal);
      throw error;
    }
    if (!isBackground) this.#thread?.add(held); // a leader that hangs must step down
    this.timer.add(held);
    this.#hooks.granted(held);
    return held;
  }

  /** Ends an attempt: at once if possible, otherwise in the background. The script does not block the attempt's ID. */
  async cancel(request: Request, id: string, form: Form, isReachable: boolean, mayStillRun: boolean): Promise<void> {
    const until = this.clock.now() + Math.max(request.lease + STILL_RUNS, this.timeout);
    const send: Send = (words) => this.wire.call(request.key, words, this.timeout);
    const by = (one: Form): Promise<unknown> => one.cancel(request, id, this.subscription.channel, send);
    const settle = (): Promise<unknown> =>
      by(form).catch((error: unknown) => {
        const isGone = error instanceof ReplyError && error.isUnknownCommand && this.#canByScript(request);
        if (!isGone) throw error;
        return by(this.portable);
      });
    if (mayStillRun && (form === this.portable || this.isPortable))
      this.timer.later(this.clock.now() + STILL_RUNS, () => this.timer.owe(until, settle));
    if (isReachable) {
      try {
        await settle();
        return;
      } catch {
        // in the background
      }
    }
    this.timer.owe(until, settle);
  }

  /**
   * Sends a renewal or a release, which may be sent twice. While a call over the application's only connection has no
   * reply, that connection may be half open, so this uses the manager's own connection.
   */
  async send(key: Buffer, words: Words, timeout: number): Promise<unknown> {
    if (this.#overdue) {
      const connection = await this.connections.take(key, timeout, (turn) => turn);
      if (!connection) throw new ConnectionLost(new Error('no connection came free'));
      return connection.call(words, timeout).finally(() => this.connections.giveBack(connection));
    }
    try {
      return await this.wire.call(key, words, timeout);
    } catch (error) {
      if (error instanceof ConnectionLost && error.settled && this.wire.hasOneConnection)
        this.#isOverdue(error.settled);
      throw error;
    }
  }

  #isOverdue(late: Promise<unknown>): void {
    this.#overdue = late;
    const answered = (): void => {
      if (this.#overdue === late) this.#overdue = undefined;
    };
    late.then(answered, answered);
  }

  renew(held: Held, timeout: number): Promise<unknown> {
    return this.sendExtend(held, held._request.lease, timeout);
  }

  /** Sends an EXTEND that may be sent twice. */
  sendExtend(held: Held, lease: number, timeout: number): Promise<unknown> {
    const request = held._request;
    return held._inFlight.add(held._form.extend(request, held.token, lease, this.#surely(request, timeout)));
  }

  #surely(request: Request, timeout: number): Send {
    return (words) => this.send(request.key, words, timeout);
  }

  async extend(held: Held, lease: number): Promise<void> {
    held.check();
    const sent = this.clock.now();
    held._lease.extending(sent, lease);
    let reply: unknown;
    try {
      reply = await this.ask(held, (form, send) =>
        held._inFlight.add(form.extend(held._request, held.token, lease, send)),
      );
    } finally {
      held._lease.extended(sent, lease, reply === 1);
      this.timer.add(held);
    }
    if (reply !== 1) this.#taken(held);
  }

  async verify(held: Held): Promise<number> {
    held.check();
    const left = await this.ask(held, (form, send) => form.check(held._request, held.token, send));
    const least = Math.min(...left.map(Number));
    if (!(least > 0)) this.#taken(held);
    return Math.min(least, held.left());
  }

  async fenced(held: Held, words: (string | Uint8Array | number)[]): Promise<unknown> {
    held.check();
    const given = words.map((word, at): Word => {
      if (word instanceof Uint8Array) return Buffer.from(word);
      if (typeof word === 'string' || typeof word === 'number') return word;
      throw new LockBadArgumentError(
        held.key,
        `argument ${at} of fenced is ${String(word)}, neither text, bytes nor a number`,
      );
    });
    const plain = this.wire.prefixed(given);
    const key = plain[1];
    const keys = key === undefined ? [held._request.key] : [held._request.key, key];
    const reply = await this.ask(held, (form, send) =>
      send(['EVAL', form.fenced, keys.length, ...keys, held.token, ...plain]),
    );
    const first: unknown = Array.isArray(reply) ? reply[0] : undefined;
    if (String(first) === 'LOCK.LOST') this.#taken(held);
    return first ?? null;
  }

  #taken(held: Held): never {
    held._lose(TAKEN, true);
    held.check();
    throw held._over();
  }

  /** Sends a command in the hold's form. Rejects with the typed error. */
  async ask<T>(held: Held, call: (form: Form, send: Send) => Promise<T>): Promise<T> {
    const send: Send = (words) => this.wire.call(held._request.key, words, this.timeout);
    for (;;) {
      try {
        return await call(held._form, send);
      } catch (thrown) {
        const error = read(thrown);
        if (!(error instanceof ReplyError && this.missed(held, error))) throw typed(error, held.key);
      }
    }
  }

  /**
   * Whether the lock was held to the end. If it cannot be released now, it is released in the background. `entirely`:
   * even if the caller has acquired it several times.
   */
  async release(held: Held, entirely = false): Promise<boolean> {
    if (held._ended) throw new LockMisuseError(held.key, 'it was released before');
    if (!entirely && held._entries > 1) {
      held._entries -= 1;
      return held.isHeld;
    }
    const wasLost = held.lost !== undefined;
    this.#end(held);
    const request = held._request;
    const wait = held._granted + request.atLeast - this.clock.now();
    let inTime = false;
    try {
      if (held._gone) inTime = false;
      else if (wait > 0 && !wasLost) inTime = await this.#releasing.later(held, wait);
      else inTime = (await this.#releasing.now(held)) && !wasLost;
    } finally {
      this.sessions.leave(held);
    }
    this.#hooks.released(held, inTime);
    return inTime;
  }

  #end(held: Held): void {
    held._ended = true;
    this.timer.forget();
    this.#thread?.forget(held);
  }

  /**
   * Ends a hold whose lock stays until then, by the lease clock. If that time has passed, it is released. `isLong`:
   * its lease already ends then. Resolves to whether the lock was held to the end of the hold.
   */
  async keep(held: Held, until: number, isLong: boolean): Promise<boolean> {
    if (held.lost || this.clock.now() >= until) return this.release(held, true);
    this.#end(held);
    const inTime = isLong || (await this.#keeping.keep(held, until));
    this.#hooks.released(held, inTime);
    return inTime;
  }

  /** Releases a hold's lock in the background. */
  giveUp(held: Held): void {
    if (held._ended) return;
    this.#end(held);
    this.#releasing.owe(held);
  }

  /** What the server adds to the hold's leases. */
  async margin(held: Held): Promise<number> {
    return held._form === this.portable ? MARGIN : this.serverClock.readMargin(held._request.key);
  }

  /** Called once for each lost hold. */
  lost(held: Held, error: LockLostError): void {
    this.#thread?.forget(held);
    this.warn(error.message);
    this.#hooks.lost(held, error);
    this.callBack(() => (held._request.onLost as LockOptions['onLost'])?.(held));
  }

  /** The best way to send the next command. */
  get form(): Form {
    return this.isPortable ? this.portable : COMMANDS;
  }

  get mayBeLoaded(): boolean {
    return !this.isPortable || this.clock.now() >= this.#askForModule;
  }

  /** Whether to send LOCK.*. If the module was missing, one attempt tries every few seconds; others use the script. */
  asksForModule(): boolean {
    if (!this.mayBeLoaded) return false;
    if (this.isPortable) this.#askForModule = this.clock.now() + ASK_FOR_MODULE;
    return true;
  }

  #canByScript(request: Request): boolean {
    return this.options.portable && request.needsModule === undefined;
  }

  missModule(error: ReplyError): void {
    if (!this.options.portable) throw error;
    this.isPortable = true;
    this.#askForModule = this.clock.now() + ASK_FOR_MODULE;
    if (this.#hasWarned || !this.options.warnWithoutModule) return;
    this.#hasWarned = true;
    const text =
      'the server has no LOCK.*: locks work through a script, in order of arrival; ' +
      'session, blocking waits and deadlock detection need the module';
    if (this.options.warn) this.warn(`${text} (${error.message})`);
    else process.emitWarning(text, { type: 'ServerlockWarning', code: 'SERVERLOCK_NO_MODULE', detail: error.message });
  }

  /** Whether to continue with the script because the module is gone. Both use the same value of the key. */
  missed(held: Held, error: ReplyError): boolean {
    const goesOn = error.isUnknownCommand && held._form === COMMANDS && this.#canByScript(held._request);
    if (goesOn) held._form = this.portable;
    return goesOn;
  }

  /** What the manager keeps for callers. */
  census(): Record<string, number> {
    return {
      attempts: this.callers.size,
      waiting: this.subscription.size,
      owed: this.timer.owed,
      flights: this.flights.size,
      sessions: this.sessions.size,
      ...this.connections.counts,
    };
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.callers.close((attempt) => new LockMisuseError(attempt.request.name, 'its manager is closed'));
    this.subscription.close();
    this.connections.close();
    this.blocking.end();
    this.sessions.close();
    this.#thread?.close();
    this.timer.close();
  }
}
