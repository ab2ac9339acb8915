/**
 * The clock on which leases are counted. performance.now() stands still while the machine is suspended, and the server
 * counts on. So what the wall clock gains on it counts as well: a suspend, or a step forwards, after which a loss may
 * be reported too early. A step backwards counts for nothing.
 */

/** The wall clock is read in whole milliseconds, and not at quite the same time. */
const NOISE = 20;
/** A process that is held up between two readings would take that for a step. */
const TOGETHER = 5;

let steady = 0;
let gained = 0;
let ahead = wallAhead();

/** Reads both clocks: how far the wall clock is ahead. */
function wallAhead(): number {
  for (;;) {
    const before = performance.now();
    const wall = Date.now();
    steady = performance.now();
    if (steady - before < TOGETHER) return wall - steady;
  }
}

/** Milliseconds of a clock that is never set back and runs on in a suspend. */
export function now(): number {
  const step = wallAhead() - ahead;
  if (step > NOISE) gained += step;
  if (step > NOISE || step < 0) ahead += step;
  return steady + gained;
}
