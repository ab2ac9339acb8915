/**
 * Runs a body once for each tick, in one of the processes that ask. The lock itself records that a tick has run: it is
 * kept until the tick's window ends.
 */

import { booleanOf, msOf, optionsOf, signalOf } from './checks.js';
import type { Engine } from './engine.js';
import { LockBadArgumentError, LockError } from './errors.js';
import { ConnectionLost, ReplyError, typed } from './failures.js';
import type { Held, HeldOnce } from './hold.js';
import { LATE_EXTEND } from './keeping.js';
import { ACQUIRE_OPTIONS, type AcquireOptions, ONCE_OPTIONS, type OnceOptions } from './options.js';
import { Request, shown } from './request.js';
import { type Estimate, isGood, MOST_DOUBT } from './server-clock.js';
import { defaultLease, endOf, isRecovery, LEAST_PERIOD, tickAt } from './ticks.js';

/** A long lease that ends earlier than it should by more than ROUNDING, or later by more than EXACT, is corrected. */
const ROUNDING = 2;
const EXACT = 100;
const MOST_CORRECTIONS = 3;
/** A long lease is at least this long until the tick of its grant is known: that may be the next one. */
const LEAST_LONG = 1000;
/** After this time, two clocks may have drifted so far apart that the server's is read again when a body ends. */
const DRIFTS = 600_000;

/** What became of a call for a tick. */
export type Outcome<T> =
  | {
      /**
       * ran: the body ran here. recovered: the lease of a process that ran expired within this tick's window, perhaps
       * in the middle of its work, and the body ran here.
       */
      outcome: 'ran' | 'recovered';
      /** What the body returned. */
      value: T;
    }
  | {
      /** Another process is running the tick, or has run it. */
      outcome: 'elsewhere';
      value?: undefined;
    };

/** @internal The arguments of `once`, checked. */
export interface Schedule {
  readonly request: Request;
  readonly period: number;
  readonly reruns: boolean;
  /** How long after multiples of the period its ticks begin. */
  readonly offset: number;
  /** The same request with another lease, which is never renewed. */
  readonly long: (lease: number) => Request;
}

/** @internal */
export function scheduleOf(
  key: Buffer,
  period: unknown,
  options: OnceOptions,
  prefix: string,
  offset: unknown = 0,
): Schedule {
  const name = shown([key]);
  optionsOf(options, name, ONCE_OPTIONS);
  const ms = msOf(period, 'period', name, LEAST_PERIOD);
  const { lease = defaultLease(ms), rerun, ...rest } = options;
  const requestOf = (lease: unknown, more: { maxHold?: number } = {}): Request =>
    new Request([key], lease, { ...rest, ...more, details: true }, [], false, false, prefix);
  const request = requestOf(lease);
  if (request.lease > ms / 2) throw new LockBadArgumentError(name, `lease is ${lease}, longer than half of the period`);
  const reruns = booleanOf(rerun, 'rerun', name, true);
  const phase = msOf(offset, 'offset', name, 0, ms);
  return { request, period: ms, reruns, offset: phase, long: (lease) => requestOf(lease, { maxHold: 1 }) };
}

/** @internal The tick that a hold runs. */
export interface TickRun {
  readonly tick: number;
  readonly period: number;
  readonly clock: Estimate;
  readonly margin: number;
}

/**
 * @internal When the lease must end, by the local clock, so that the server lets others in at the end of the window. If
 * the estimate of the server's clock is wrong, others may get in a little later, but not earlier.
 */
export function leaseEnds({ tick, period, clock, margin }: TickRun): number {
  return endOf(tick, period) + Math.min(clock.doubt, MOST_DOUBT) - clock.offset - margin;
}

/** Describes a body that runs once per period, in one of the processes that ask. Any number of callers may use it. */
export class Once {
  readonly #engine: Engine;
  readonly #schedule: Schedule;

  private constructor(engine: Engine, schedule: Schedule) {
    this.#engine = engine;
    this.#schedule = schedule;
  }

  /** @internal */
  static _of(engine: Engine, schedule: Schedule): Once {
    return new Once(engine, schedule);
  }

  /**
   * Runs the body, unless another process is running this tick, or has run it. The body's signal is aborted when the
   * lock is lost; then the promise rejects with LockLostError once the body has ended.
   *
   * If the body succeeds, nobody else runs this tick; anything slow is done in the background. If it throws, another
   * process may run the tick, and the promise rejects with that error. `options.signal` has no effect once the body has
   * begun.
   */
  async run<T>(
    body: (signal: AbortSignal, held: HeldOnce) => T | Promise<T>,
    options: AcquireOptions = {},
  ): Promise<Outcome<T>> {
    const { name } = this.#schedule.request;
    if (typeof body !== 'function') throw new LockBadArgumentError(name, `body is ${String(body)}, not a function`);
    optionsOf(options, name, ACQUIRE_OPTIONS);
    signalOf(options.signal, name);
    const begun = await this.#begin(options.signal);
    if (!begun) return { outcome: 'elsewhere' };
    const { held, run } = begun;
    const value = await this.#engine.within(
      held,
      () => body(held.signal, held),
      () => this.#finish(held, run),
    );
    return { outcome: held.recovered ? 'recovered' : 'ran', value };
  }

  /** Begins to run the current tick. undefined: another process is running it, or has run it. */
  async #begin(signal: AbortSignal | undefined): Promise<{ held: HeldOnce; run: TickRun } | undefined> {
    const [engine, { request, period, reruns, long }] = [this.#engine, this.#schedule];
    engine.reentered(request);
    const clock = await this.#unlessGivenUp(() => this.#readClock(), signal);
    let asked = request;
    if (!reruns) {
      const tick = tickAt(this.#engine.clock.now() + clock.offset, period);
      const ends = leaseEnds({ tick, period, clock, margin: engine.serverClock.margin });
      asked = long(Math.max(LEAST_LONG, Math.ceil(ends - this.#engine.clock.now())));
    }
    let held: Held;
    try {
      held = await engine.acquire(asked, signal);
    } catch (error) {
      if (error instanceof LockError && error.code === 'refused') return undefined;
      throw error;
    }
    try {
      return await this.#begun(held, clock, signal);
    } catch (error) {
      engine.giveUp(held);
      throw error;
    }
  }

  /** The server's clock, which is set back by the offset: on it, the ticks begin at multiples of the period. */
  async #readClock(): Promise<Estimate> {
    const clock = await this.#engine.serverClock.read(this.#schedule.request.key);
    return { ...clock, offset: clock.offset - this.#schedule.offset };
  }

  async #begun(
    held: Held,
    clock: Estimate,
    signal: AbortSignal | undefined,
  ): Promise<{ held: HeldOnce; run: TickRun }> {
    held._isReentrant = false;
    const { period, reruns } = this.#schedule;
    const [sent, before] = [held._lease.sent, held.predecessor];
    // The server granted it between two moments. If a kept lease had to end first, its window has ended by the later.
    const tick = tickAt(held._granted + clock.offset, period);
    const granted = sent + clock.offset - clock.doubt;
    const recovered = before !== null && isRecovery(granted - before.overdue, tick, period);
    const once: HeldOnce = Object.assign(held, { tick, recovered });
    const margin = await this.#unlessGivenUp(() => this.#engine.margin(held), signal);
    const run = { tick, period, clock, margin };
    if (!reruns) await this.#unlessGivenUp(() => this.#correct(held, run, held._granted - sent), signal);
    return { held: once, run };
  }

  /**
   * Sets the end of a long lease again if it is off, because of the tick or the margin, or because the server may have
   * counted the lease from too late a moment. `took`: how long the request took.
   */
  async #correct(held: Held, run: TickRun, took: number): Promise<void> {
    for (let tries = 0; tries < MOST_CORRECTIONS; tries += 1) {
      const late = held._lease.end - leaseEnds(run);
      if (late >= -ROUNDING && late <= EXACT && took <= LATE_EXTEND) return;
      const sent = this.#engine.clock.now();
      await this.#engine.extend(held, Math.max(1, Math.ceil(leaseEnds(run) - sent)));
      took = this.#engine.clock.now() - sent;
    }
  }

  /** Ends the hold of a body that succeeded, so that nobody else runs its tick. */
  async #finish(held: HeldOnce, run: TickRun): Promise<boolean> {
    const isLong = !this.#schedule.reruns;
    let { clock } = run;
    if (!isLong && held.isHeld && (this.#engine.clock.now() > clock.asked + DRIFTS || !isGood(clock))) {
      // If the server does not reply, the old estimate is used.
      clock = await this.#readClock().catch(() => clock);
    }
    return this.#engine.keep(held, leaseEnds({ ...run, clock }), isLong);
  }

  /** Rejects with the typed error, or the signal's reason. */
  async #unlessGivenUp<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const { request } = this.#schedule;
    try {
      const result = await this.#engine.callers.awaits(request, signal, work);
      signal?.throwIfAborted();
      return result;
    } catch (error) {
      const isOurs = error instanceof ReplyError || error instanceof ConnectionLost;
      throw isOurs ? typed(error, request.name) : error;
    }
  }
}
