/**
 * The thread that renews locks, over one connection of its own. It ends with its manager, or when the process does.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { borrowClock, CLOCK, now, type SharedClock } from './clock.js';
import { COMMANDS } from './commands.js';
import type { ReplyError } from './failures.js';
import type { Form, Send } from './form.js';
import { InFlight } from './in-flight.js';
import { TAKEN } from './lease.js';
import { Portable } from './portable.js';
import { type Renewable, type Renewer, Timer } from './renewal.js';
import { type ClientOptions, wireFrom } from './renewal-client.js';
import { Request } from './request.js';
import { WrittenLease } from './thread-lease.js';
import type { Connection, Wire, Words } from './wire.js';

/** What the thread is started with. */
export interface Setup {
  readonly client: ClientOptions;
  readonly clock: SharedClock;
  readonly timeout: number;
  readonly portable: boolean;
}

/** A hold to be renewed. */
export interface Task {
  readonly keys: readonly Uint8Array[];
  readonly kind: readonly (string | number)[];
  readonly many: boolean;
  readonly session: boolean;
  /** That of the renewals. */
  readonly lease: number;
  readonly maxHold: number;
  readonly token: number;
  readonly granted: number;
  readonly sent: number;
  /** Its lease when it is handed over. */
  readonly length: number;
  readonly isPortable: boolean;
  readonly memory: SharedArrayBuffer;
}

/** What the loop tells the thread. `id` is that of a hold. */
export type Order =
  | { readonly to: 'renew'; readonly id: number; readonly task: Task }
  | { readonly to: 'extending'; readonly id: number; readonly sent: number; readonly length: number }
  | { readonly to: 'extended'; readonly id: number; readonly sent: number; readonly length: number; isDone: boolean }
  /** No more EXTEND is sent. Answered with `idle`. */
  | { readonly to: 'forget'; readonly id: number };

/** What the thread tells the loop. */
export type Report =
  /** It hears orders from now on. */
  | { readonly of: 'ready' }
  /** The server has replied that the grant has ended. */
  | { readonly of: 'end'; readonly id: number }
  /** The server runs no more of its EXTENDs, unless `isUnsure`: one got no reply a short while ago. */
  | { readonly of: 'idle'; readonly id: number; readonly isUnsure: boolean }
  | { readonly of: 'warning'; readonly text: string };

/** How long a command may still run after its connection was closed. */
const STILL_RUNS = 2000;

class Hold implements Renewable {
  readonly _request: Request;
  readonly _granted: number;
  readonly _lease: WrittenLease;
  readonly _isOnLoop = true;
  readonly token: number;
  readonly inFlight = new InFlight(CLOCK);
  form: Form;
  _renewing = false;
  _entry = 0;
  _ended = false;

  constructor(
    task: Task,
    portable: Form,
    readonly ended: () => void,
  ) {
    const options = { owner: null, maxHold: task.maxHold, session: task.session };
    this._request = new Request(
      task.keys.map((key) => Buffer.from(key)),
      task.lease,
      options,
      task.kind,
      task.many,
    );
    this._granted = task.granted;
    this._lease = new WrittenLease(task.sent, task.length, task.memory);
    this.token = task.token;
    this.form = task.isPortable ? portable : COMMANDS;
  }

  get key(): string {
    return this._request.name;
  }

  get isHeld(): boolean {
    return !this._ended && now() < this._lease.lostAt;
  }

  _lose(why: string): void {
    this._ended = true;
    if (why !== TAKEN) return;
    this._lease.markGone();
    this.ended();
  }
}

class Renewals implements Renewer<Hold> {
  readonly isClosed = false;
  readonly clock = CLOCK;
  readonly timeout: number;
  readonly #mayUseScript: boolean;
  readonly #wire: Wire;
  readonly #portable: Portable;
  readonly #tell: (report: Report) => void;
  readonly #timer = new Timer<Hold>(this);
  readonly #holds = new Map<number, Hold>();
  #connecting: Promise<Connection> | undefined;
  #connection: Connection | undefined;

  constructor({ client, timeout, portable }: Setup, tell: (report: Report) => void) {
    this.timeout = timeout;
    this.#mayUseScript = portable;
    this.#wire = wireFrom(client);
    this.#portable = new Portable({ wire: this.#wire, timeout, clock: CLOCK }, { refusal: undefined });
    this.#tell = tell;
  }

  obey(order: Order): void {
    const { id } = order;
    if (order.to === 'renew') {
      const hold = new Hold(order.task, this.#portable, () => this.#tell({ of: 'end', id }));
      this.#holds.set(id, hold);
      this.#timer.add(hold);
      return;
    }
    const hold = this.#holds.get(id);
    if (order.to === 'forget') {
      void this.#forget(id, hold);
    } else if (order.to === 'extending') {
      hold?._lease.extendingElsewhere(order.sent, order.length);
    } else if (hold) {
      hold._lease.extendedElsewhere(order.sent, order.length, order.isDone);
      this.#timer.add(hold);
    }
  }

  async #forget(id: number, hold: Hold | undefined): Promise<void> {
    this.#holds.delete(id);
    if (hold && !hold._ended) {
      hold._ended = true;
      this.#timer.forget();
    }
    await hold?.inFlight.settle();
    const isUnsure = hold !== undefined && now() < hold.inFlight.failedAt + STILL_RUNS;
    this.#tell({ of: 'idle', id, isUnsure });
  }

  renew(hold: Hold, timeout: number): Promise<unknown> {
    const { _request: request, token, form } = hold;
    const send: Send = (words) => this.#call(request.key, words, timeout);
    return hold.inFlight.add(this.#extend(request, token, form, send));
  }

  async #extend(request: Request, token: number, form: Form, send: Send): Promise<unknown> {
    if (form === this.#portable) await this.#portable.prepare(request, send);
    return form.extend(request, token, request.lease, send);
  }

  async #call(key: Buffer, words: Words, timeout: number): Promise<unknown> {
    if (!this.#connection?.isOpen) {
      this.#connecting ??= this.#wire.connect(key, timeout).finally(() => {
        this.#connecting = undefined;
      });
      this.#connection = await this.#connecting;
    }
    return this.#connection.call(words, timeout);
  }

  missed(hold: Hold, error: ReplyError): boolean {
    const goesOn =
      error.isUnknownCommand && hold.form === COMMANDS && this.#mayUseScript && hold._request.needsModule === undefined;
    if (goesOn) hold.form = this.#portable;
    return goesOn;
  }

  warn(text: string): void {
    this.#tell({ of: 'warning', text });
  }
}

const setup = workerData as Setup;
borrowClock(setup.clock);
const renewals = new Renewals(setup, (report) => parentPort?.postMessage(report));
parentPort?.on('message', (order: Order) => renewals.obey(order));
parentPort?.postMessage({ of: 'ready' } satisfies Report);
