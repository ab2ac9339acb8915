/** Leader election: campaigns for a lock until stopped. The leader holds the lock for as long as it lives. */

import type { Clock } from './clock.js';
import type { Engine } from './engine.js';
import { LockTimeoutError } from './errors.js';
import type { Held } from './hold.js';
import type { LeaderHooks } from './options.js';
import type { Request } from './request.js';
import { fieldsOf } from './wire.js';

/** The current leader; token and owner are null while there is no leader. */
export interface Leadership {
  token: number | null;
  owner: string | null;
}

/** Campaigns for a key from `start` until `stop`. It does not keep the process alive. */
export class Leader {
  #stop = new AbortController();
  #turn = new AbortController();
  #held: Held | undefined;
  #running: Promise<void> | undefined;

  readonly #engine: Engine;
  readonly #request: Request;
  readonly #hooks: LeaderHooks;

  private constructor(engine: Engine, request: Request, hooks: LeaderHooks) {
    this.#engine = engine;
    this.#request = request;
    this.#hooks = hooks;
  }

  /** @internal */
  static _of(engine: Engine, request: Request, hooks: LeaderHooks): Leader {
    return new Leader(engine, request, hooks);
  }

  /** The token while this process leads. */
  get token(): number | undefined {
    return this.#held?.isHeld ? this.#held.token : undefined;
  }

  /** Starts campaigning; does nothing if already started. */
  start(): this {
    this.#running ??= this.#campaign();
    return this;
  }

  /** Steps down and stops campaigning. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#turn.abort();
    await this.#running;
  }

  /** Steps down, and campaigns again once others have had their turn. */
  resign(): void {
    if (this.#held) this.#turn.abort();
  }

  /** Yields the current leader, then each new one, until `stop`. Asks the server three times per lease. */
  async *observe(): AsyncGenerator<Leadership> {
    let before: Leadership | undefined;
    while (!this.#stop.signal.aborted) {
      const leader = await this.#leader();
      if (leader.token !== before?.token || before === undefined) {
        before = leader;
        yield leader;
      }
      await pause(this.#engine.clock, this.#request.lease / 3, this.#stop.signal);
    }
  }

  async #campaign(): Promise<void> {
    const stop = this.#stop.signal;
    while (!stop.aborted && !this.#engine.isClosed) {
      let held: Held;
      try {
        held = await this.#engine.acquire(this.#request, stop, true);
      } catch (error) {
        if (!(error instanceof LockTimeoutError))
          await pause(this.#engine.clock, Math.min(1000, this.#request.lease / 3), stop);
        continue;
      }
      this.#held = held;
      this.#turn = new AbortController();
      this.#engine.callBack(() => this.#hooks.onElected?.(held.token));
      const over = AbortSignal.any([held.signal, this.#turn.signal, stop]);
      if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }));
      // Before the release: `onLost` must come before the next leader is elected.
      this.#engine.callBack(() => this.#hooks.onLost?.(held.token));
      this.#held = undefined;
      const resigned = this.#turn.signal.aborted;
      await held.release().catch((error: unknown) => this.#engine.warn(`resigning: ${String(error)}`));
      if (resigned) await pause(this.#engine.clock, Math.min(1000, this.#request.lease / 3), stop);
    }
  }

  async #leader(): Promise<Leadership> {
    const { wire, timeout } = this.#engine;
    let reply: unknown;
    try {
      reply = await wire.call(this.#request.key, ['LOCK.INFO', this.#request.key], timeout);
    } catch {
      return { token: null, owner: null };
    }
    const fields = fieldsOf(reply);
    const [token, owner] = [fields.get('token'), fields.get('owner')];
    if (String(fields.get('state')) !== 'held' || !token) return { token: null, owner: null };
    return { token: Number(token), owner: owner === null || owner === undefined ? null : String(owner) };
  }
}

function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      cancel();
      signal.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    signal.addEventListener('abort', done);
  });
}
