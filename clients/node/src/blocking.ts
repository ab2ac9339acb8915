/**
 * The connection on which a manager's only wait blocks. That takes one round trip; NOTIFY takes two and a message.
 * It is for processes that do one thing at a time. Once a second attempt is waiting too, all attempts wait with NOTIFY.
 */

import type { Connection, Reach } from './wire.js';

export class Blocking {
  readonly #reach: Reach;
  #connection: Connection | undefined;
  #isTaken = false;
  /** A second attempt has waited. */
  isOver = false;

  constructor(reach: Reach) {
    this.#reach = reach;
  }

  /** Whether an attempt may start on the connection: it is open, and nobody is waiting. */
  get isReady(): boolean {
    return !this.#isTaken && this.openConnection !== undefined;
  }

  /** Whether the caller waits alone. If so, it owns the connection until `leave`. */
  enter(): boolean {
    if (this.#isTaken || this.isOver || !this.#reach.wire.hasOneConnection) return false;
    this.#isTaken = true;
    return true;
  }

  get openConnection(): Connection | undefined {
    return this.#connection?.isOpen ? this.#connection : undefined;
  }

  async open(key: Buffer): Promise<Connection> {
    if (this.openConnection) return this.openConnection;
    this.#connection = await this.#reach.wire.connect(key, this.#reach.timeout);
    return this.#connection;
  }

  leave(): void {
    this.#isTaken = false;
    if (this.isOver) this.end();
  }

  /** Called when others are waiting too, or the manager is closed. An attempt that is blocking finishes its piece. */
  end(): void {
    this.isOver = true;
    if (this.#isTaken) return;
    this.#connection?.close();
    this.#connection = undefined;
  }
}
