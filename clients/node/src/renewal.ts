/**
 * One timer for all holds of a manager. It never keeps the process alive. It has only weak references to holds: a
 * dropped hold is not renewed. Debts are releases and cancellations that failed; each is retried until it works.
 */

import type { Cancel, Clock } from './clock.js';
import { ConnectionLost, isTransient, ReplyError } from './failures.js';
import { type Lease, TAKEN } from './lease.js';

/** A hold, as renewal sees it. */
export interface Renewable {
  readonly key: string;
  readonly _request: { readonly lease: number; readonly maxHold: number; readonly timed: boolean };
  readonly _granted: number;
  readonly _lease: Lease;
  readonly isHeld: boolean;
  readonly _ended: boolean;
  /** Whether this timer renews it; otherwise it only reports its loss. */
  readonly _isOnLoop: boolean;
  _renewing: boolean;
  _entry: number;
  _lose(why: string, gone: boolean): void;
}

/** What renewal needs from the manager. */
export interface Renewer<Held extends Renewable> {
  readonly clock: Clock;
  readonly isClosed: boolean;
  readonly timeout: number;
  /** Resends the lease. It must not refer to the hold while it waits for the reply. */
  renew(held: Held, timeout: number): Promise<unknown>;
  /** Notes that the module is gone. */
  missed(held: Held, error: ReplyError): boolean;
  warn(text: string): void;
}

type Work = () => void;
type Entry<Held extends Renewable> = [at: number, number: number, what: WeakRef<Held> | Work];

export class Timer<Held extends Renewable> {
  readonly #renewer: Renewer<Held>;
  #heap: Entry<Held>[] = [];
  #count = 0;
  #dead = 0;
  #cancel: Cancel | undefined;
  #wakesAt = Infinity;

  constructor(renewer: Renewer<Held>) {
    this.#renewer = renewer;
  }

  /** How much is still to be done. */
  get owed(): number {
    return this.#heap.filter(([, , what]) => typeof what === 'function').length;
  }

  add(held: Held): void {
    if (!held._request.timed) this.#again(held, held._lease.renewAt);
  }

  /** Called when a hold ends before its entry is due. Such entries are removed once they are the majority. */
  forget(): void {
    if (++this.#dead > 1000 && this.#dead * 2 > this.#heap.length) {
      this.#dead = 0;
      const live = this.#heap.filter(([, , what]) => typeof what === 'function' || what.deref()?._ended === false);
      this.#heap = [];
      for (const entry of live) this.#push(entry);
    }
  }

  later(at: number, work: Work): void {
    this.#push([at, ++this.#count, work]);
    this.#set();
  }

  /** Pays a debt in the background, retrying until it works or that time has come. */
  owe(until: number, debt: () => Promise<unknown>): void {
    debt().catch((error: unknown) => {
      const isOurs = error instanceof ConnectionLost || error instanceof ReplyError;
      if (isOurs && isTransient(error) && this.#renewer.clock.now() < until && !this.#renewer.isClosed)
        this.later(this.#renewer.clock.now() + 250, () => this.owe(until, debt));
    });
  }

  /** Holds are no longer renewed; their losses are still reported. */
  close(): void {
    const holds = this.#heap.filter(([, , what]) => typeof what !== 'function');
    this.#heap = [];
    for (const entry of holds) this.#push(entry);
  }

  /** Only a hold's newest entry has an effect. */
  #again(held: Held, at: number): void {
    held._entry = ++this.#count;
    this.#push([at, held._entry, new WeakRef(held)]);
    this.#set();
  }

  #set(): void {
    const first = this.#heap[0];
    if (!first || first[0] >= this.#wakesAt) return;
    this.#cancel?.();
    this.#wakesAt = first[0];
    const { clock } = this.#renewer;
    this.#cancel = clock.after(Math.min(clock.longestNap, first[0] - clock.now()), () => this.#run());
  }

  #run(): void {
    this.#wakesAt = Infinity;
    const time = this.#renewer.clock.now();
    while (this.#heap[0] && this.#heap[0][0] <= time) {
      const [, number, what] = this.#pop();
      if (typeof what === 'function') what();
      else this.#look(what.deref(), number, time);
    }
    this.#set();
  }

  #look(held: Held | undefined, number: number, time: number): void {
    if (!held || number !== held._entry || !held.isHeld) return;
    const mayRenew = held._isOnLoop && !this.#renewer.isClosed && time < held._granted + held._request.maxHold;
    if (mayRenew && time >= held._lease.renewAt && !held._renewing) {
      held._renewing = true;
      void this.#renew(new WeakRef(held));
    }
    this.#again(held, held._lease.lostAt);
  }

  async #renew(ref: WeakRef<Held>): Promise<void> {
    const renewer = this.#renewer;
    const sent = this.#renewer.clock.now();
    let reply: unknown;
    {
      const held = ref.deref();
      if (!held) return;
      const timeout = Math.max(50, Math.min(renewer.timeout, (held._lease.lostAt - sent) / 2));
      held._lease.extending(sent, held._request.lease);
      reply = renewer.renew(held, timeout).catch((error: unknown) => error);
    }
    reply = await reply;
    const held = ref.deref();
    if (!held) return;
    held._renewing = false;
    held._lease.extended(sent, held._request.lease, reply === 1);
    if (!held.isHeld) return;
    if (reply === 1) {
      this.#again(held, held._lease.renewAt);
    } else if (reply === 0) {
      held._lose(TAKEN, true);
    } else {
      if (reply instanceof ReplyError) renewer.missed(held, reply);
      renewer.warn(`renewing the lock ${held.key} failed; trying again: ${String(reply)}`);
      this.#again(
        held,
        Math.min(held._lease.lostAt, this.#renewer.clock.now() + Math.max(held._lease.length / 20, 10)),
      );
    }
  }

  #push(entry: Entry<Held>): void {
    const heap = this.#heap;
    let at = heap.push(entry) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if ((heap[up] as Entry<Held>)[0] <= entry[0]) break;
      heap[at] = heap[up] as Entry<Held>;
      at = up;
    }
    heap[at] = entry;
  }

  #pop(): Entry<Held> {
    const heap = this.#heap;
    const top = heap[0] as Entry<Held>;
    const last = heap.pop() as Entry<Held>;
    if (heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let down = at * 2 + 1;
      if (down >= heap.length) break;
      if (down + 1 < heap.length && (heap[down + 1] as Entry<Held>)[0] < (heap[down] as Entry<Held>)[0]) down += 1;
      if ((heap[down] as Entry<Held>)[0] >= last[0]) break;
      heap[at] = heap[down] as Entry<Held>;
      at = down;
    }
    heap[at] = last;
    return top;
  }
}
