/** Time that stands still until it is moved. Whatever falls due on the way is done in chronological order. */

import { setImmediate } from 'node:timers/promises';
import type { Cancel, Clock } from './clock.js';

/** When it starts, by the server's clock: 2030-03-17 17:46:40 UTC. */
const EPOCH = 1_900_000_000_000;
/** Everything has settled after this many turns of the event loop without a step in a manager or in the server. */
const IDLE_TURNS = 10;
/** Code that asks again and again, without a pause, never settles. */
const MOST_TURNS = 100_000;

/** The server, as the clock sees it. */
interface Timed {
  /** When something falls due next; Infinity if nothing will. */
  nextDue(): number;
  runDue(): void;
}

interface Alarm {
  readonly at: number;
  readonly work: () => void;
}

export class MemoryTime implements Clock {
  readonly longestNap = Infinity; // nothing is suspended
  /** Counts what happens. */
  activity = 0;
  #now = 0;
  readonly #alarms = new Set<Alarm>();
  readonly #server: Timed[] = [];

  now(): number {
    return this.#now;
  }

  /** In milliseconds since the beginning of 1970. */
  get serverTime(): number {
    return EPOCH + this.#now;
  }

  after(ms: number, work: () => void): Cancel {
    this.activity += 1;
    const alarm = { at: this.#now + Math.max(0, ms), work };
    this.#alarms.add(alarm);
    return () => this.#alarms.delete(alarm);
  }

  drive(server: Timed): void {
    this.#server.push(server);
  }

  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await this.settle();
    while (this.#step(end)) await this.settle();
  }

  async settle(): Promise<void> {
    let seen = -1;
    for (let [turn, idle] = [0, 0]; idle < IDLE_TURNS && turn < MOST_TURNS; turn += 1) {
      await setImmediate();
      idle = seen === this.activity ? idle + 1 : 0;
      seen = this.activity;
    }
  }

  /** Goes to the next moment at which something is due, and does it. False: nothing was due until `end`. */
  #step(end: number): boolean {
    const first = this.#first();
    const due = Math.min(first?.at ?? Infinity, ...this.#server.map((server) => server.nextDue()));
    if (due > end) {
      this.#now = Math.max(this.#now, end);
      return false;
    }
    this.activity += 1;
    this.#now = Math.max(this.#now, due);
    for (const server of this.#server) server.runDue();
    // One at a time, because what follows from one may cancel the next.
    if (first && first.at <= this.#now && this.#alarms.delete(first)) first.work();
    return true;
  }

  #first(): Alarm | undefined {
    let first: Alarm | undefined;
    for (const alarm of this.#alarms) if (!first || alarm.at < first.at) first = alarm;
    return first;
  }
}
