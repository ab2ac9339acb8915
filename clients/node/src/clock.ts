/**
 * The clock on which leases are measured. performance.now() stops while the machine is suspended, but the server keeps
 * counting. So whatever the wall clock gains on it is added. That happens after a suspend, and after the wall clock is
 * set forward; in that case, a loss may be reported too early. A step backward is ignored.
 */

import { Shared } from './shared.js';

/** The wall clock has whole milliseconds, and the readings are not simultaneous. */
const NOISE = 20;
/** A process that is delayed between two readings would mistake the delay for a step. */
const TOGETHER = 5;

/** The monotonic clock. */
let read = (): number => performance.now();
let steady = 0;
/** What the wall clock has gained. It only grows. */
let gained = 0;
/** What turns a reading of the wall clock's lead into `gained`: it grows when the wall clock is set back. */
let base = -wallAhead();
/** Both, if threads share the clock. */
let shared: Shared | undefined;

/** Reads both clocks: how far ahead the wall clock is. */
function wallAhead(): number {
  for (;;) {
    const before = read();
    const wall = Date.now();
    steady = read();
    if (steady - before < TOGETHER) return wall - steady;
  }
}

/** Milliseconds of a clock that never goes backwards and keeps running while the machine is suspended. */
export function now(): number {
  // Before the clocks are read, because what the other thread noticed after that is counted by the next reading.
  if (shared) [gained, base] = [shared.raise(0, gained), shared.raise(1, base)];
  const step = base + wallAhead() - gained;
  if (step > NOISE) {
    gained += step;
    shared?.raise(0, gained);
  } else if (step < 0) {
    base -= step;
    shared?.raise(1, base);
  }
  return steady + gained;
}

/** What a worker thread needs to have the same clock. */
export interface SharedClock {
  readonly memory: SharedArrayBuffer;
  /** How far process.hrtime, which all threads share, is ahead of the monotonic clock. */
  readonly ahead: number;
}

const systemTime = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Lends the clock. From now on, a step that one of the threads notices counts for all of them. */
export function lendClock(): SharedClock {
  if (!shared) {
    shared = new Shared(2);
    shared.set(0, gained);
    shared.set(1, base);
  }
  for (;;) {
    const before = performance.now();
    const ahead = systemTime() - before;
    if (performance.now() - before < 1) return { memory: shared.memory, ahead };
  }
}

/** Uses the clock of the thread that lent it. */
export function borrowClock({ memory, ahead }: SharedClock): void {
  shared = new Shared(memory);
  read = () => systemTime() - ahead;
  [gained, base] = [shared.get(0), shared.get(1)];
}

/** Ends what `after` began. */
export type Cancel = () => void;

/** The time of a manager. */
export interface Clock {
  now(): number;
  /** The longest that timers may sleep, because they stop while the machine is suspended. */
  readonly longestNap: number;
  /** Calls the work after that many milliseconds. Only with `keepsAlive` does that keep the process alive. */
  after(ms: number, work: () => void, keepsAlive?: boolean): Cancel;
}

const LONGEST_TIMEOUT = 2_000_000_000;

export const CLOCK: Clock = {
  now,
  longestNap: 1000,
  after(ms, work, keepsAlive = false) {
    const timer = setTimeout(work, Math.min(Math.max(0, ms), LONGEST_TIMEOUT));
    if (!keepsAlive) timer.unref();
    return () => clearTimeout(timer);
  },
};

export const pause = (clock: Clock, ms: number, keepsAlive = false): Promise<void> =>
  new Promise((resolve) => {
    clock.after(ms, resolve, keepsAlive);
  });
