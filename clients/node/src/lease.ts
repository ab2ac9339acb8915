/** The lease of a hold, as its holder sees it: until when the lock is certain to be held, by the holder's own clock. */

/** Why a lock is lost if the server replies that its grant has ended. */
export const TAKEN = 'somebody else has taken it';

export type Part = readonly [sent: number, length: number];

const sooner = (a: Part, b: Part): Part => (b[0] + b[1] < a[0] + a[1] ? b : a);

export class Lease {
  #now: Part;
  #onTheirWay = 0;
  /** The EXTEND on its way whose lease ends first. */
  #least: Part = [0, 0];
  /** How much of the lease counts: the holder considers its lock lost a tenth before the end. */
  readonly #part: number;

  constructor(sent: number, length: number, part = 0.9) {
    this.#now = [sent, length];
    this.#part = part;
  }

  /** Whether the server has replied that the grant has ended. */
  get isGone(): boolean {
    return false;
  }

  protected get current(): Part {
    return this.#now;
  }

  /** When the request that set it was sent. */
  get sent(): number {
    return this.current[0];
  }

  get length(): number {
    return this.current[1];
  }

  get end(): number {
    return this.#at(1);
  }

  get lostAt(): number {
    return this.#at(this.#part);
  }

  get renewAt(): number {
    return this.#at(1 / 3);
  }

  #at(part: number): number {
    const [sent, length] = this.current;
    return sent + length * part;
  }

  /**
   * Called when an EXTEND is sent. Its reply may be lost, so an earlier end takes effect at once. If several are on
   * their way, the server may execute them in any order, so the earliest end applies.
   */
  extending(sent: number, length: number): void {
    if (this.#onTheirWay++ === 0) this.#least = [sent, length];
    this.#least = sooner(this.#least, [sent, length]);
    this.#now = sooner(this.#now, [sent, length]);
  }

  /** Called with the result of that EXTEND. */
  extended(sent: number, length: number, isDone: boolean): void {
    this.#onTheirWay -= 1;
    if (isDone) this.#now = sooner(this.#least, [sent, length]);
  }
}
