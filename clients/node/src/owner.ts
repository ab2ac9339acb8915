/** The owner of a lock whose caller names none: `host:pid`, so that operators see which process holds what. */

import { hostname } from 'node:os';

const LONGEST = 128;

/** Characters that are not visible ASCII become `?`; the name is cut where the owner would be too long. */
export function labelOf(host: string, pid: number): string {
  const end = `:${pid}`;
  return host.replace(/[^!-~]/gu, '?').slice(0, LONGEST - end.length) + end;
}

let known: string | undefined;

/** This process. Node never forks one that has loaded this file. */
export function hostAndPid(): string {
  known ??= labelOf(hostname(), process.pid);
  return known;
}

export const isOwner = (owner: unknown): boolean => typeof owner === 'string' && /^[!-~]{1,128}$/.test(owner);
