/** The locks and queues of an in-memory server. They follow the module's rules, as far as this package uses them. */

import { ReplyError } from './failures.js';
import {
  type Ask,
  CLAIM,
  type Client,
  type Grant,
  LONGEST_RESULT,
  Lock,
  MARGIN,
  PLACE,
  type Reply,
  type Waiter,
} from './memory-lock.js';
import type { MemoryTime } from './memory-time.js';

/** The reply to a blocked call, which arrives later. */
export const PENDING = Symbol('pending');

interface Place {
  readonly order: number;
  readonly since: number;
  readonly until: number;
}

const placeOf = (ask: Ask): string => JSON.stringify([ask.id, ask.keys]);

export class Table {
  readonly #time: MemoryTime;
  readonly #publish: (channel: string, message: string) => void;
  readonly #locks = new Map<string, Lock>();
  readonly #queues = new Map<string, Waiter[]>();
  #orders = 0;
  /** For a while, an ID that left a queue, or was refused, has its place there. */
  readonly #places = new Map<string, Place>();
  /** Attempts that were notified of a result, and until when each can claim it. */
  readonly #results = new Map<string, { readonly result: string; readonly until: number }>();
  #lastToken = 0;
  readonly refused = new Map<string, Error>();

  constructor(time: MemoryTime, publish: (channel: string, message: string) => void) {
    this.#time = time;
    this.#publish = publish;
  }

  get #now(): number {
    return this.#time.now();
  }

  lock(key: string): Lock {
    let lock = this.#locks.get(key);
    if (!lock) {
      lock = new Lock();
      this.#locks.set(key, lock);
    }
    lock.forget(this.#now);
    return lock;
  }

  queue(key: string): readonly Waiter[] {
    return this.#queues.get(key) ?? [];
  }

  // Commands

  acquire(ask: Ask, client: Client | undefined): Reply | typeof PENDING {
    this.checkAllowed(ask.keys);
    const result = this.#resultFor(ask);
    if (result) return [result];
    const own = this.#waiterOf(ask);
    const grants = this.#held(ask);
    if (grants[0]) {
      for (const grant of grants) this.#prolong(grant, ask, client);
      return this.#reply(ask, grants[0]);
    }
    const { order, since } = this.#place(ask, own);
    if (own) this.#leave(own);
    const blocked = this.#blockedAt(ask, order);
    if (blocked === undefined) return this.#reply(ask, this.#grant(ask, client));
    if (!ask.wait || (ask.channel === undefined && !client)) {
      this.#reserve(ask, order, since);
      return null;
    }
    const answer = ask.channel === undefined ? client?.deliver.bind(client) : undefined;
    this.#join({ ask, key: blocked, order, since, deadline: this.#now + ask.wait, client, answer });
    return answer ? PENDING : 'WAITING';
  }

  recover(ask: Ask, client: Client | undefined): Reply {
    this.checkAllowed(ask.keys);
    const [key] = ask.keys as [string];
    const lock = this.lock(key);
    if (lock.grants.length === 0 || lock.live(this.#now).length > 0 || this.queue(key).length > 0) return null;
    return this.#reply(ask, this.#grant(ask, client));
  }

  extend(keys: readonly string[], token: number, lease: number): number {
    this.checkAllowed(keys);
    const now = this.#now;
    const grants = keys.map((key) => this.lock(key).find(token));
    const alive = grants.filter((grant) => grant !== undefined && grant.ends > now && !grant.claimant) as Grant[];
    if (alive.length < keys.length) return 0;
    for (const grant of alive) grant.lasts(lease, now);
    return 1;
  }

  /** `result`: for the attempts in the queue that take it, as text in latin1. */
  release(key: string, token: number, result?: string): number {
    if (result !== undefined && result.length > LONGEST_RESULT)
      throw new ReplyError(`ERR result is longer than ${LONGEST_RESULT} bytes, the limit lock.result-max`);
    const lock = this.lock(key);
    const grant = lock.find(token);
    if (!grant) return 0;
    const inTime = grant.ends > this.#now;
    lock.drop(grant);
    if (inTime && result !== undefined && !grant.claimant) this.#passOn(key, result);
    this.#serve(key);
    return inTime ? 1 : -1;
  }

  /** Each attempt in the queue that takes the result gets it instead of the lock. */
  #passOn(key: string, result: string): void {
    const until = this.#now + CLAIM;
    for (const waiter of this.queue(key).filter(({ ask }) => ask.takesResult)) {
      this.#leave(waiter);
      if (waiter.answer) {
        waiter.answer([Buffer.from(result, 'latin1')]);
      } else {
        this.#results.set(placeOf(waiter.ask), { result, until });
        this.#notify(waiter, 'result');
      }
    }
  }

  #resultFor(ask: Ask): Buffer | undefined {
    for (const [place, { until }] of this.#results) if (until <= this.#now) this.#results.delete(place);
    const known = ask.takesResult ? this.#results.get(placeOf(ask)) : undefined;
    return known && Buffer.from(known.result, 'latin1');
  }

  check(key: string, token: number): number {
    const grant = this.lock(key).find(token);
    return grant && !grant.claimant ? Math.max(0, Math.trunc(grant.leaseEnds - this.#now)) : 0;
  }

  cancel(key: string, id: string): number {
    const waiter = this.#waiters().find(({ ask }) => ask.id === id && ask.keys.includes(key));
    for (const place of this.#places.keys()) {
      const [of, keys] = JSON.parse(place) as [string, string[]];
      if (of === id && keys.includes(key)) this.#places.delete(place);
    }
    if (waiter) {
      this.#end(waiter, 'cancelled', null);
      return 1;
    }
    const lock = this.lock(key);
    const grant = lock.findId(id, this.#now);
    if (!grant) return 0;
    lock.drop(grant);
    this.#serve(key);
    return 1;
  }

  // What tests do

  /** The lease of each holder ends, and the margin after it. */
  expire(key: string): void {
    for (const grant of this.lock(key).live(this.#now)) {
      if (grant.claimant) continue;
      grant.leaseEnds = Math.min(grant.leaseEnds, this.#now);
      grant.ends = this.#now;
    }
    this.#serve(key);
  }

  refuse(key: string, error: Error): void {
    this.refused.set(key, error);
    for (const waiter of this.#waiters()) if (waiter.ask.keys.includes(key)) this.#end(waiter, 'unblocked', error);
  }

  checkAllowed(keys: readonly string[]): void {
    for (const key of keys) {
      const error = this.refused.get(key);
      if (error) throw error;
    }
  }

  /** A connection has ended: its waits end, and a margin later its locks. */
  disconnect(client: Client): void {
    const now = this.#now;
    for (const waiter of this.#waiters()) {
      if (waiter.client !== client || !waiter.answer) continue;
      this.#leave(waiter);
      this.#reserve(waiter.ask, waiter.order, waiter.since);
      this.#serve(waiter.key);
    }
    for (const lock of this.#locks.values()) {
      for (const grant of lock.live(now)) {
        if (grant.session !== client) continue;
        grant.leaseEnds = Math.min(grant.leaseEnds, now);
        grant.ends = Math.min(grant.ends, now + MARGIN);
      }
    }
  }

  // Time

  nextDue(): number {
    let due = Math.min(...this.#waiters().map(({ deadline }) => deadline));
    for (const [key, lock] of this.#locks) {
      const hasQueue = this.queue(key).length > 0;
      for (const grant of lock.live(this.#now)) if (hasQueue || grant.claimant) due = Math.min(due, grant.ends);
    }
    return due;
  }

  runDue(): void {
    const now = this.#now;
    for (const [key, lock] of [...this.#locks]) {
      for (const grant of lock.grants) {
        const { claimant } = grant;
        if (!claimant || grant.ends > now) continue;
        lock.drop(grant);
        this.#reserve(claimant.ask, claimant.order, claimant.since);
      }
      this.#serve(key);
    }
    for (const waiter of this.#waiters()) {
      if (waiter.deadline > now) continue;
      this.#reserve(waiter.ask, waiter.order, waiter.since);
      this.#end(waiter, 'timeout', null);
    }
  }

  // Queues

  /** Grants the lock to the waiters at the head of the queue, as long as it is free for them. */
  #serve(key: string): void {
    for (let [waiter] = this.queue(key); waiter; [waiter] = this.queue(key)) {
      const blocked = this.#blockedAt(waiter.ask, waiter.order);
      if (blocked === key) return;
      this.#leave(waiter);
      if (blocked === undefined) {
        this.#handOver(waiter);
      } else {
        waiter.key = blocked; // one of several keys: it waits for another one now
        this.#join(waiter);
      }
    }
  }

  #handOver(waiter: Waiter): void {
    const { ask, answer } = waiter;
    if (answer) {
      answer(this.#reply(ask, this.#grant(ask, waiter.client)));
      return;
    }
    const [now, token] = [this.#now, this.#nextToken()];
    for (const key of ask.keys) {
      const grant = this.lock(key).add(ask, token, now);
      grant.claimant = waiter;
      grant.leaseEnds = now;
      grant.ends = now + CLAIM;
    }
    this.#notify(waiter, 'granted');
  }

  /** The first key that the attempt cannot have: others hold it, or are ahead in its queue. */
  #blockedAt(ask: Ask, order: number): string | undefined {
    const isBlocked = (key: string): boolean =>
      !this.lock(key).admits(ask, this.#now) || this.queue(key).some((waiter) => waiter.order < order);
    return ask.keys.find(isBlocked);
  }

  /** The attempt's place, and since when it has had it. */
  #place(ask: Ask, own: Waiter | undefined): { order: number; since: number } {
    if (own) return own;
    const before = this.#places.get(placeOf(ask));
    this.#places.delete(placeOf(ask));
    if (before && before.until > this.#now) return before;
    return { order: ++this.#orders, since: this.#now };
  }

  #reserve(ask: Ask, order: number, since: number): void {
    if (ask.id === undefined) return;
    const now = this.#now;
    for (const [place, { until }] of this.#places) if (until <= now) this.#places.delete(place);
    this.#places.set(placeOf(ask), { order, since, until: now + PLACE });
  }

  #waiters(): Waiter[] {
    return [...this.#queues.values()].flat();
  }

  #waiterOf(ask: Ask): Waiter | undefined {
    if (ask.id === undefined) return undefined;
    return this.#waiters().find((waiter) => placeOf(waiter.ask) === placeOf(ask));
  }

  #join(waiter: Waiter): void {
    const queue = [...this.queue(waiter.key), waiter].sort((a, b) => a.order - b.order);
    this.#queues.set(waiter.key, queue);
  }

  #leave(waiter: Waiter): void {
    const queue = this.queue(waiter.key).filter((one) => one !== waiter);
    if (queue.length > 0) this.#queues.set(waiter.key, queue);
    else this.#queues.delete(waiter.key);
  }

  #end(waiter: Waiter, message: string, reply: Error | null): void {
    this.#leave(waiter);
    if (waiter.answer) waiter.answer(reply);
    else this.#notify(waiter, message);
    this.#serve(waiter.key);
  }

  #notify({ ask }: Waiter, message: string): void {
    if (ask.channel !== undefined) this.#publish(ask.channel, `${message} ${ask.id} ${ask.keys[0]}`);
  }

  // Grants

  /** The grants that this attempt has, or may claim: one for each of its keys. */
  #held(ask: Ask): Grant[] {
    const grants = ask.keys.map((key) => this.lock(key).findId(ask.id, this.#now));
    const isOne = grants.every((grant) => grant !== undefined && grant.token === grants[0]?.token);
    return isOne ? (grants as Grant[]) : [];
  }

  #grant(ask: Ask, client: Client | undefined): Grant {
    const [token, now] = [this.#nextToken(), this.#now];
    const grants = ask.keys.map((key) => this.lock(key).add(ask, token, now));
    for (const grant of grants) this.#prolong(grant, ask, client);
    return grants[0] as Grant;
  }

  /** An attempt gets its grant, or asks for it again. */
  #prolong(grant: Grant, ask: Ask, client: Client | undefined): void {
    const now = this.#now;
    if (grant.id === undefined) {
      grant.id = ask.id;
      grant.owner = ask.owner;
      grant.claimant = undefined;
      grant.lasts(ask.lease, now);
    } else if (grant.leaseEnds < now + ask.lease) {
      grant.lasts(ask.lease, now);
    }
    grant.session = ask.isSession ? client : undefined;
  }

  #nextToken(): number {
    this.#lastToken = Math.max(this.#lastToken + 1, Math.round(this.#time.serverTime * 1000));
    return this.#lastToken;
  }

  #reply(ask: Ask, grant: Grant): Reply {
    return ask.hasDetails ? [grant.token, ...grant.predecessor()] : grant.token;
  }
}
