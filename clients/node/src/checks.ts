/** Checks of what callers pass. Without types, a wrong name or value would be ignored. */

import { LockBadArgumentError } from './errors.js';

/** The name of a lock: text, or bytes. */
export type Key = string | Uint8Array;

/** @internal Checks that the value is an object with only these names. `what` names the value in the error. */
export function optionsOf(value: unknown, key: string, names: Readonly<Record<string, true>>, what = 'options'): void {
  const isObject =
    typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof AbortSignal);
  if (!isObject) throw new LockBadArgumentError(key, `${what} is ${String(value)}, not an object with options`);
  for (const name in value) {
    if (!Object.hasOwn(names, name)) {
      throw new LockBadArgumentError(key, `${what} has no '${name}', only ${Object.keys(names).join(', ')}`);
    }
  }
}

/** @internal */
export function functionOf(value: unknown, name: string, key: string): void {
  if (value !== undefined && typeof value !== 'function')
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a function`);
}

/** @internal */
export function booleanOf(value: unknown, name: string, key: string, otherwise: boolean): boolean {
  if (value !== undefined && typeof value !== 'boolean')
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a boolean`);
  return value ?? otherwise;
}

/** @internal */
export function signalOf(value: unknown, key: string): void {
  const isSignal = typeof (value as AbortSignal | null | undefined)?.throwIfAborted === 'function';
  if (value !== undefined && !isSignal)
    throw new LockBadArgumentError(key, `signal is ${String(value)}, not an AbortSignal`);
}

const TEN_YEARS = 315_360_000_000;

/** @internal Milliseconds. */
export function msOf(value: unknown, name: string, key: string, least: number, most = TEN_YEARS): number {
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not between ${least} and ${most} milliseconds`);
  }
  return value;
}

/** @internal A whole number. */
export function countOf(value: unknown, name: string, key: string, least: number, most: number): number {
  if (!Number.isInteger(value) || (value as number) < least || (value as number) > most) {
    throw new LockBadArgumentError(key, `${name} is ${String(value)}, not a whole number between ${least} and ${most}`);
  }
  return value as number;
}
