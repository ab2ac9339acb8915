/**
 * Renews holds in a worker thread, for an event loop that is blocked for longer than a lease. The loop's own timer
 * still reports losses. If the thread dies, the loop renews its holds. It does not keep the process alive.
 */

import { Worker } from 'node:worker_threads';
import { lendClock } from './clock.js';
import { ConnectionLost } from './failures.js';
import type { Form } from './form.js';
import type { Held } from './hold.js';
import type { Timer } from './renewal.js';
import type { ClientOptions } from './renewal-client.js';
import type { Order, Report, Setup } from './renewal-worker.js';
import { ReadLease } from './thread-lease.js';

/** What the thread needs from the manager. */
export interface Manager {
  readonly timeout: number;
  readonly timer: Timer<Held>;
  readonly options: { readonly portable: boolean };
  readonly portable: Form;
  warn(text: string): void;
}

/** When the server no longer runs the thread's EXTENDs for a forgotten hold. */
interface Idle {
  resolve(): void;
  reject(error: ConnectionLost): void;
}

export class RenewalThread {
  readonly #manager: Manager;
  readonly #worker: Worker;
  #isOver = false;
  #started: (() => void) | undefined;
  /** Resolves once the thread can renew, or has ended. undefined: it has. */
  starting: Promise<void> | undefined = new Promise((resolve) => {
    this.#started = resolve;
  });
  #count = 0;
  readonly #ids = new WeakMap<Held, number>();
  readonly #holds = new Map<number, WeakRef<Held>>();
  readonly #ending = new Map<number, Idle>();
  readonly #dropped = new FinalizationRegistry<number>((id) => this.#forget(id));

  constructor(manager: Manager, client: ClientOptions) {
    this.#manager = manager;
    this.#worker = this.#start(client);
  }

  /** Renews the hold from now on. */
  add(held: Held): void {
    if (this.#isOver) return;
    const id = ++this.#count;
    const { sent, length } = held._lease;
    const lease = new ReadLease(held._lease, held._request.lease, {
      extending: (sent, length) => this.#tell({ to: 'extending', id, sent, length }),
      extended: (sent, length, isDone) => this.#tell({ to: 'extended', id, sent, length, isDone }),
    });
    const { keys, kind, many, lease: renewed, maxHold, options } = held._request;
    const task = {
      keys,
      kind: kind as (string | number)[],
      many,
      session: options.session === true,
      lease: renewed,
      maxHold,
      token: held.token,
      granted: held._granted,
      sent,
      length,
      isPortable: held._form === this.#manager.portable,
      memory: lease.memory,
    };
    this.#tell({ to: 'renew', id, task });
    held._lease = lease;
    held._isOnLoop = false;
    this.#ids.set(held, id);
    this.#holds.set(id, new WeakRef(held));
    this.#dropped.register(held, id, held);
  }

  /** Stops renewing the hold. The thread's commands count as in flight until it is idle. */
  forget(held: Held): void {
    const id = this.#ids.get(held);
    if (id === undefined || !this.#holds.has(id)) return;
    this.#dropped.unregister(held);
    const idle = new Promise<void>((resolve, reject) => this.#ending.set(id, { resolve, reject }));
    void held._inFlight.add(idle);
    this.#forget(id);
  }

  /** Ends the thread, and with it the renewal. */
  close(): void {
    this.#isOver = true;
    void this.#worker.terminate();
  }

  #forget(id: number): void {
    this.#holds.delete(id);
    this.#tell({ to: 'forget', id });
  }

  #tell(order: Order): void {
    this.#worker.postMessage(order);
  }

  /** At once, because a thread takes a moment to start, and the loop may soon be blocked. */
  #start(client: ClientOptions): Worker {
    const { timeout, options } = this.#manager;
    const setup: Setup = { client, clock: lendClock(), timeout, portable: options.portable };
    const worker = new Worker(new URL('renewal-worker.js', import.meta.url), {
      workerData: setup,
      name: 'serverlock renewal',
      execArgv: [],
    });
    let why = 'it has ended';
    worker.on('message', (report: Report) => this.#hear(report));
    worker.on('error', (error) => {
      why = String(error);
    });
    worker.on('exit', () => this.#ended(why));
    worker.unref();
    return worker;
  }

  #hear(report: Report): void {
    if (report.of === 'ready') {
      this.#begin();
    } else if (report.of === 'warning') {
      this.#manager.warn(report.text);
    } else if (report.of === 'end') {
      void this.#holds.get(report.id)?.deref()?.lost; // reading it reports the loss
    } else {
      const idle = this.#ending.get(report.id);
      this.#ending.delete(report.id);
      if (report.isUnsure) idle?.reject(new ConnectionLost(new Error('an EXTEND of the thread got no reply')));
      else idle?.resolve();
    }
  }

  #begin(): void {
    this.starting = undefined;
    this.#started?.();
  }

  #ended(why: string): void {
    this.#begin();
    for (const idle of this.#ending.values()) idle.reject(new ConnectionLost(new Error('the thread has ended')));
    this.#ending.clear();
    const holds = [...this.#holds.values()].map((ref) => ref.deref()).filter((held) => held !== undefined);
    this.#holds.clear();
    for (const held of holds) (held._lease as ReadLease).settle();
    if (this.#isOver) return;
    this.#isOver = true;
    const text = `the thread that renews locks has ended, so the event loop renews them: ${why}`;
    process.emitWarning(text, { type: 'ServerlockWarning', code: 'SERVERLOCK_RENEWAL' });
    for (const held of holds) {
      held._isOnLoop = true;
      this.#manager.timer.add(held);
    }
  }
}
