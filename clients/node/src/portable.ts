/**
 * The same lock where the module is not loaded: the script portable/lock.lua, called by its hash. Keys, values, replies
 * and errors are those of the commands. Each call names the lock and its queue, or only the lock where the queue
 * cannot be used; then attempts poll.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { ReplyError } from './failures.js';
import type { Form, Send } from './form.js';
import type { Request } from './request.js';
import type { Reach, Word } from './wire.js';

/** What the script adds to each lease, in milliseconds. */
export const MARGIN = 1000;
const RETENTION = 60_000;
/** How long an answer about the eviction policy is valid. A failover may bring in a different server. */
const POLICY_VALID_FOR = 60_000;
/** How long to wait before a denied queue is tried again. */
const DENIAL_VALID_FOR = 60_000;

let known: { source: string; digest: string } | undefined;

/** The script: the function library without its first line. */
function script(): { source: string; digest: string } {
  if (!known) {
    const source = readFileSync(new URL('lock.lua', import.meta.url), 'latin1').replace(/^#!.*\n/, '');
    known = { source, digest: createHash('sha1').update(source, 'latin1').digest('hex') };
  }
  return known;
}

const isReply = (error: unknown, ...codes: string[]): error is ReplyError =>
  error instanceof ReplyError && codes.includes(error.code);

interface Subscribing {
  /** Why there is no subscription. */
  readonly refusal: ReplyError | undefined;
}

export class Portable implements Form {
  /** Several holders form a sorted set. */
  readonly fenced = `
local time, token, value = redis.call('TIME'), ('%016.0f'):format(ARGV[1]), redis.pcall('GET', KEYS[1])
local ends = type(value) == 'string' and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. token)
local holders = type(value) == 'table' and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') or {}
for i = 1, #holders, 2 do if holders[i]:sub(1, 16) == token then ends = holders[i + 1] end end
if not ends or tonumber(ends) - ${MARGIN / 1000} <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}`;
  readonly #reach: Reach;
  readonly #subscription: Subscribing;
  #isLoaded = false;
  #retention = -1;
  #asked = -Infinity;
  #deniedUntil = -Infinity;

  constructor(reach: Reach, subscription: Subscribing) {
    this.#reach = reach;
    this.#subscription = subscription;
  }

  /** Whether an attempt waits in its lock's queue; otherwise it polls. */
  queues(request: Request): boolean {
    return !request.many && !this.#isAlone(request) && this.#subscription.refusal === undefined;
  }

  async acquire(request: Request, id: string, wait: number, channel: string | undefined, send: Send): Promise<unknown> {
    await this.prepare(request);
    const name = request.scripted;
    const plain = request.terms(id);
    // An attempt without NOTIFY never overtakes a queue, so it would starve behind one.
    if (this.#subscription.refusal && request.mayBeAlone) return this.#run(request.names, name, plain, send);
    return this.#call(request, name, channel === undefined ? plain : request.terms(id, wait, channel), send, plain);
  }

  async cancel(request: Request, id: string, channel: string, send: Send): Promise<unknown> {
    if (!request.many && !this.#isAlone(request)) {
      try {
        const terms = ['ID', id, 'NOTIFY', channel, ...request.kind];
        return await this.#run(request.namesAndQueues as Word[], 'lock_cancel', terms, send);
      } catch (error) {
        if (!(isReply(error, 'NOPERM') && request.mayBeAlone)) throw error;
      }
    }
    // The same ID gets the same token.
    const token = await this.#call(
      request,
      request.many ? 'lock_acquire_all' : 'lock_acquire',
      ['PX', 1, 'ID', id],
      send,
    );
    return typeof token === 'number' ? this.release(request, token, send) : token;
  }

  extend(request: Request, token: number, lease: number, send: Send): Promise<unknown> {
    const terms = [token, 'PX', Math.max(1, Math.round(lease))];
    return this.#call(request, request.many ? 'lock_extend_all' : 'lock_extend', terms, send);
  }

  release(request: Request, token: number, send: Send): Promise<unknown> {
    return this.#call(request, request.many ? 'lock_release_all' : 'lock_release', [token], send);
  }

  check(request: Request, token: number, send: Send): Promise<unknown[]> {
    if (!request.many) return Promise.all([this.#call(request, 'lock_check', [token], send)]);
    const [all, most] = [request.namesAndQueues as Word[], request.names.length];
    const pairs = request.names.map((name, at) => [name, all[most + at] as Word]);
    return Promise.all(pairs.map((pair) => this.#run(pair, 'lock_check', [token], send)));
  }

  info(request: Request, send: Send): Promise<unknown> {
    return this.#call(request, 'lock_info', [], send);
  }

  /** Whether calls name only the lock. */
  #isAlone(request: Request): boolean {
    return request.namesAndQueues === undefined || (request.mayBeAlone && this.#reach.clock.now() < this.#deniedUntil);
  }

  /** `alone`: the arguments if the call names only the lock. */
  async #call(request: Request, name: string, terms: Word[], send: Send, alone = terms): Promise<unknown> {
    if (this.#isAlone(request)) return this.#run(request.names, name, alone, send);
    try {
      return await this.#run(request.namesAndQueues as Word[], name, terms, send);
    } catch (error) {
      if (!(isReply(error, 'NOPERM', 'TRYAGAIN') && request.mayBeAlone)) throw error;
      const reply = await this.#run(request.names, name, alone, send);
      // The lock is allowed, so the queue was denied.
      if (error.code === 'NOPERM') this.#deniedUntil = this.#reach.clock.now() + DENIAL_VALID_FOR;
      return reply;
    }
  }

  async #run(keys: readonly Word[], name: string, terms: Word[], send: Send): Promise<unknown> {
    const words = [keys.length, ...keys, name, MARGIN, this.#retention, ...terms];
    if (this.#isLoaded) {
      try {
        return await send(['EVALSHA', script().digest, ...words]);
      } catch (error) {
        if (!isReply(error, 'NOSCRIPT')) throw error;
        this.#isLoaded = false;
      }
    }
    const reply = await send(['EVAL', script().source, ...words]);
    this.#isLoaded = true;
    return reply;
  }

  #toServerOf(request: Request): Send {
    const { wire, timeout } = this.#reach;
    return (words) => wire.call(request.key, words, timeout);
  }

  /** A volatile policy could evict a key with an expiry, so locks get none then, nor if INFO is not allowed. */
  async prepare(request: Request, send = this.#toServerOf(request)): Promise<void> {
    if (this.#reach.clock.now() < this.#asked + POLICY_VALID_FOR) return;
    let reply: unknown;
    try {
      reply = await send(['INFO', 'memory']);
    } catch (error) {
      if (!(error instanceof ReplyError)) throw error;
      reply = '';
    }
    this.#asked = this.#reach.clock.now();
    this.#retention = /maxmemory_policy:(?!volatile)/.test(String(reply)) ? RETENTION : -1;
  }
}
