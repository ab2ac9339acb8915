/**
 * The same lock where the module is not loaded: the scripts of portable/lock.lua, sent by hash. Keys, values, replies
 * and errors are those of the commands, for one key with one holder.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { now } from './clock.js';
import { ReplyError } from './failures.js';
import type { Request } from './request.js';
import type { Reach, Word } from './wire.js';

const MARGIN = 1000;
const RETENTION = 60_000;
/** How long an answer about the eviction policy counts: a failover brings another server. */
const POLICY_COUNTS = 60_000;

let known: { source: string; digest: string } | undefined;

/** The script: the function library without its first line. */
function script(): { source: string; digest: string } {
  if (!known) {
    const source = readFileSync(new URL('lock.lua', import.meta.url), 'latin1').replace(/^#!.*\n/, '');
    known = { source, digest: createHash('sha1').update(source, 'latin1').digest('hex') };
  }
  return known;
}

export const FENCED = `
local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
if not ends or tonumber(ends) - ${MARGIN / 1000} <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}`;

export class Portable {
  readonly #reach: Reach;
  #isLoaded = false;
  #retention = -1;
  #asked = -Infinity;

  constructor(reach: Reach) {
    this.#reach = reach;
  }

  async acquire(request: Request, id: string): Promise<unknown> {
    await this.#askPolicy(request);
    const name = request.recover ? 'lock_recover' : 'lock_acquire';
    return this.#call(request, name, ...request.acquire(id).slice(2));
  }

  /** Gives back what this ID may have been granted: the same ID gets the same token. */
  async cancel(request: Request, id: string): Promise<void> {
    const reply = await this.#call(request, 'lock_acquire', 'PX', 1, 'ID', id);
    if (typeof reply === 'number') await this.#call(request, 'lock_release', reply);
  }

  words(request: Request, name: string, ...args: Word[]): Word[] {
    const by = this.#isLoaded ? ['EVALSHA', script().digest] : ['EVAL', script().source];
    return [...by, 1, request.key, name, MARGIN, this.#retention, ...args];
  }

  /** The server no longer has the script. */
  missed(): void {
    this.#isLoaded = false;
  }

  async #call(request: Request, name: string, ...args: Word[]): Promise<unknown> {
    const { wire, timeout } = this.#reach;
    try {
      const reply = await wire.call(request.key, this.words(request, name, ...args), timeout);
      this.#isLoaded = true;
      return reply;
    } catch (error) {
      if (!(error instanceof ReplyError && error.code === 'NOSCRIPT')) throw error;
      this.missed();
    }
    const reply = await wire.call(request.key, this.words(request, name, ...args), timeout);
    this.#isLoaded = true;
    return reply;
  }

  /** A volatile policy could evict a key with an expiry, so locks get none; nor do they if INFO is not allowed. */
  async #askPolicy(request: Request): Promise<void> {
    if (now() < this.#asked + POLICY_COUNTS) return;
    let reply: unknown;
    try {
      reply = await this.#reach.wire.call(request.key, ['INFO', 'memory'], this.#reach.timeout);
    } catch (error) {
      if (!(error instanceof ReplyError)) throw error;
      reply = '';
    }
    this.#asked = now();
    this.#retention = /maxmemory_policy:(?!volatile)/.test(String(reply)) ? RETENTION : -1;
  }
}
