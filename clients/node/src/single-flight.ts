/** One caller computes a value; all that wait for it, in all processes, get the same bytes. */

import { msOf, optionsOf, signalOf } from './checks.js';
import type { Engine } from './engine.js';
import { LockBadArgumentError, LockError } from './errors.js';
import type { Caller } from './flights.js';
import type { Held } from './hold.js';
import { FLIGHT_OPTIONS, type FlightOptions } from './options.js';
import { type Request, ResultRequest, shown } from './request.js';
import { Resolved } from './results.js';

const WAIT = 60_000;
const LEAST_WAIT = 1;

/**
 * Computes the value. Returns text, which stands for its bytes in UTF-8, or bytes. The signal is aborted when the lock
 * is lost or the caller's own signal is aborted, with that reason.
 */
export type Compute = (signal: AbortSignal, held: Held) => string | Uint8Array | Promise<string | Uint8Array>;

/** @internal The arguments of `singleFlight`, checked. */
export function flightOf(
  key: Buffer,
  lease: unknown,
  compute: unknown,
  options: FlightOptions,
  prefix: string,
): Request {
  const name = shown([key]);
  optionsOf(options, name, FLIGHT_OPTIONS);
  const { signal, wait = WAIT, ...rest } = options;
  signalOf(signal, name);
  msOf(wait, 'wait', name, LEAST_WAIT, Infinity);
  const request = new ResultRequest([key], lease, { ...rest, wait }, [], false, false, prefix);
  if (typeof compute !== 'function')
    throw new LockBadArgumentError(name, `compute is ${String(compute)}, not a function`);
  return request;
}

/** @internal Resolves to the value, in a Buffer of this caller's own. */
export async function fly(
  engine: Engine,
  request: Request,
  compute: Compute,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  signal?.throwIfAborted();
  engine.reentered(request);
  const caller = engine.flights.join(request);
  try {
    const value = caller.leads ? undefined : await engine.callers.awaits(request, signal, () => caller.turn());
    return value ?? (await lead(engine, caller, compute, signal));
  } finally {
    caller.leave();
  }
}

async function lead(
  engine: Engine,
  caller: Caller,
  compute: Compute,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  const { request, flight } = caller;
  let held: Held;
  try {
    held = await engine.acquire(request, signal, false, caller.began);
  } catch (thrown) {
    if (thrown instanceof Resolved) {
      flight.land(thrown);
      return Buffer.from(thrown.value);
    }
    // The end of its own wait concerns only this caller, and so does the reason of its signal, perhaps a LockLostError.
    const isItsReason = signal?.aborted && thrown === signal.reason;
    if (thrown instanceof LockError && thrown.code !== 'timeout' && !isItsReason) flight.land({ error: thrown });
    throw thrown;
  }
  held._isReentrant = false;
  const computed = async (): Promise<Buffer> => {
    const value = bytesOf(await stoppable(compute, held, signal), held.key);
    flight.land({ value });
    held._result = value;
    return Buffer.from(value);
  };
  return engine.within(
    held,
    () => engine.flights.compute(flight, computed),
    () => releaseOf(engine, held),
  );
}

/** Calls `compute` with a signal for both: the loss of the lock, and the caller's own signal. */
async function stoppable(compute: Compute, held: Held, own: AbortSignal | undefined): Promise<unknown> {
  const either = new AbortController();
  const { signal } = either;
  const signals = own ? [own, held.signal] : [held.signal];
  const abort = (): void => either.abort(signals.find((one) => one.aborted)?.reason);
  for (const one of signals) one.addEventListener('abort', abort);
  try {
    if (signals.some((one) => one.aborted)) abort();
    signal.throwIfAborted();
    return await compute(signal, held);
  } catch (error) {
    throw signal.aborted && (error as Error | null | undefined)?.name === 'AbortError' ? signal.reason : error;
  } finally {
    for (const one of signals) one.removeEventListener('abort', abort);
  }
}

function bytesOf(value: unknown, name: string): Buffer {
  if (typeof value === 'string' || value instanceof Uint8Array) return Buffer.from(value as Uint8Array);
  throw new LockBadArgumentError(name, `compute returned ${String(value)}, neither a string nor bytes`);
}

/** The caller has its value, whatever becomes of the lock. */
async function releaseOf(engine: Engine, held: Held): Promise<true> {
  try {
    await engine.release(held, true);
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    engine.warn(`the value of ${held.key} was computed, but its lock was not released: ${error.message}`);
  }
  return true;
}
