/**
 * The clock on which leases are measured. performance.now() stops while the machine is suspended, but the server keeps
 * counting. So whatever the wall clock gains on it is added. That happens after a suspend, and after the wall clock is
 * set forward; in that case, a loss may be reported too early. A step backward is ignored.
 */

/** The wall clock has whole milliseconds, and the readings are not simultaneous. */
const NOISE = 20;
/** A process that is delayed between two readings would mistake the delay for a step. */
const TOGETHER = 5;

let steady = 0;
let gained = 0;
let ahead = wallAhead();

/** Reads both clocks: how far ahead the wall clock is. */
function wallAhead(): number {
  for (;;) {
    const before = performance.now();
    const wall = Date.now();
    steady = performance.now();
    if (steady - before < TOGETHER) return wall - steady;
  }
}

/** Milliseconds of a clock that never goes backwards and keeps running while the machine is suspended. */
export function now(): number {
  const step = wallAhead() - ahead;
  if (step > NOISE) gained += step;
  if (step > NOISE || step < 0) ahead += step;
  return steady + gained;
}
