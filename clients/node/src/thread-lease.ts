/**
 * The lease of a hold that a thread renews. The thread records when it sends an EXTEND and when one is confirmed, in
 * memory that both threads see, so the loop knows the lease at once when it runs again after a long computation.
 */

import { Lease, type Part } from './lease.js';
import { Shared } from './shared.js';

/** What the thread writes: when it sent its last EXTEND and its last confirmed one, and 1 if the grant has ended. */
const [SENT, CONFIRMED, GONE] = [0, 1, 2];

/** The thread's own lease: what it does to it is recorded. Its EXTENDs for a hold are sent one after another. */
export class WrittenLease extends Lease {
  readonly #shared: Shared;

  constructor(sent: number, length: number, memory: SharedArrayBuffer) {
    super(sent, length);
    this.#shared = new Shared(memory);
  }

  override get isGone(): boolean {
    return this.#shared.get(GONE) !== 0;
  }

  override extending(sent: number, length: number): void {
    this.#shared.set(SENT, sent); // before it is sent
    super.extending(sent, length);
  }

  override extended(sent: number, length: number, isDone: boolean): void {
    if (isDone) this.#shared.set(CONFIRMED, sent);
    super.extended(sent, length, isDone);
  }

  /** The loop sends an EXTEND of its own. */
  extendingElsewhere(sent: number, length: number): void {
    super.extending(sent, length);
  }

  extendedElsewhere(sent: number, length: number, isDone: boolean): void {
    super.extended(sent, length, isDone);
  }

  markGone(): void {
    this.#shared.set(GONE, 1);
  }
}

/** Notified of the EXTENDs that the loop sends. */
export interface Told {
  extending(sent: number, length: number): void;
  extended(sent: number, length: number, isDone: boolean): void;
}

/** The loop's view of it. */
export class ReadLease extends Lease {
  readonly #shared = new Shared(3);
  /** The length that the thread sets. */
  readonly #renewed: number;
  readonly #told: Told;
  /** The memory, as last read. */
  #sent = 0;
  #confirmed = 0;
  /** Whether the reply to the EXTEND of `#sent` is missing. */
  #isOpen = false;

  constructor(before: Lease, renewed: number, told: Told) {
    super(before.sent, before.length);
    this.#renewed = renewed;
    this.#told = told;
  }

  get memory(): SharedArrayBuffer {
    return this.#shared.memory;
  }

  override get isGone(): boolean {
    return this.#shared.get(GONE) !== 0;
  }

  protected override get current(): Part {
    this.#read();
    return super.current;
  }

  override extending(sent: number, length: number): void {
    this.#read();
    super.extending(sent, length);
    this.#told.extending(sent, length);
  }

  override extended(sent: number, length: number, isDone: boolean): void {
    this.#read();
    super.extended(sent, length, isDone);
    this.#told.extended(sent, length, isDone);
  }

  /** The thread sends no more EXTENDs. */
  settle(): void {
    this.#read();
    if (this.#isOpen) super.extended(this.#sent, this.#renewed, false);
    this.#isOpen = false;
  }

  /** The thread's EXTENDs between two readings count as one, because it sends one only after the one before. */
  #read(): void {
    const confirmed = this.#shared.get(CONFIRMED); // first: it is never later than the other
    const sent = this.#shared.get(SENT);
    if (sent === this.#sent && confirmed === this.#confirmed) return;
    const renewed = this.#renewed;
    if (this.#isOpen && (confirmed >= this.#sent || sent > this.#sent)) {
      super.extended(this.#sent, renewed, confirmed === this.#sent);
      this.#isOpen = false;
    }
    if (confirmed > this.#confirmed && confirmed !== this.#sent) {
      super.extending(confirmed, renewed);
      super.extended(confirmed, renewed, true);
    }
    if (sent > this.#sent && sent > confirmed) {
      super.extending(sent, renewed);
      this.#isOpen = true;
    }
    this.#sent = sent;
    this.#confirmed = confirmed;
  }
}
