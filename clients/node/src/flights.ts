/**
 * The callers of one manager that want the value of the same key. They share one attempt: the caller that has waited
 * longest leads, which means that it has the attempt, and computes. If it leaves without a value, the next one leads.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from './clock.js';
import { type LockError, LockMisuseError } from './errors.js';
import { timedOut } from './failures.js';
import type { Request } from './request.js';

/** What all callers of a flight get. */
type Outcome = { readonly value: Buffer } | { readonly error: LockError };

/** One call. */
export class Caller {
  readonly began: number;
  readonly #clock: Clock;
  #wake: (() => void) | undefined;
  #hasLeft = false;

  constructor(
    readonly request: Request,
    readonly flight: Flight,
    clock: Clock,
  ) {
    this.#clock = clock;
    this.began = clock.now();
  }

  get leads(): boolean {
    return this.flight.leader === this;
  }

  /** The value; undefined: this caller leads. Rejects with the attempt's error, or when `wait` ends. */
  async turn(): Promise<Buffer | undefined> {
    for (;;) {
      const { outcome } = this.flight;
      if (outcome && 'error' in outcome) throw outcome.error;
      if (outcome) return Buffer.from(outcome.value);
      if (this.leads || this.#hasLeft) return undefined;
      const waited = this.#clock.now() - this.began;
      if (waited >= this.request.wait) throw timedOut(this.request.name, waited);
      await this.#woken(this.request.wait - waited);
    }
  }

  #woken(timeout: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(timeout, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }

  /** Something has changed for this caller. */
  stir(): void {
    this.#wake?.();
  }

  leave(): void {
    this.#hasLeft = true;
    this.stir();
    this.flight.remove(this);
  }
}

export class Flight {
  outcome: Outcome | undefined;
  /** In order of arrival. */
  readonly #callers = new Set<Caller>();
  /** Called when it accepts no more callers. */
  readonly #ended: (flight: Flight) => void;

  constructor(ended: (flight: Flight) => void) {
    this.#ended = ended;
  }

  get size(): number {
    return this.#callers.size;
  }

  get leader(): Caller | undefined {
    return this.#callers.values().next().value;
  }

  add(caller: Caller): void {
    this.#callers.add(caller);
  }

  remove(caller: Caller): void {
    this.#callers.delete(caller);
    this.leader?.stir();
    if (this.size === 0) this.#ended(this);
  }

  /** All callers get this. Whoever asks from now on begins a new attempt. */
  land(outcome: Outcome): void {
    this.outcome = outcome;
    this.#ended(this);
    for (const caller of this.#callers) caller.stir();
  }
}

export class Flights {
  readonly #clock: Clock;
  readonly #byKey = new Map<string, Flight>();
  /** The flights whose values are computed around the running call. */
  readonly #around = new AsyncLocalStorage<readonly Flight[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** How many callers there are. */
  get size(): number {
    let size = 0;
    for (const flight of this.#byKey.values()) size += flight.size;
    return size;
  }

  /** Throws if this caller is computing the value: it would wait for itself, even if it has lost the lock. */
  join(request: Request): Caller {
    const key = request.key.toString('latin1');
    let flight = this.#byKey.get(key);
    if (flight && this.#around.getStore()?.includes(flight))
      throw new LockMisuseError(request.name, 'this caller is computing its value');
    if (!flight) {
      flight = new Flight((ended) => {
        if (this.#byKey.get(key) === ended) this.#byKey.delete(key);
      });
      this.#byKey.set(key, flight);
    }
    const caller = new Caller(request, flight, this.#clock);
    flight.add(caller);
    return caller;
  }

  /** Runs the work that computes the flight's value. */
  compute<T>(flight: Flight, work: () => T): T {
    return this.#around.run([...(this.#around.getStore() ?? []).filter((one) => !one.outcome), flight], work);
  }
}
