/**
 * The one line on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message. It is
 * for processes that do one thing at a time. From the second attempt that waits at the same time on, all attempts wait
 * by NOTIFY.
 */

import type { Engine } from './engine.js';
import type { Line } from './wire.js';

export class Solo {
  readonly #engine: Engine;
  #line: Line | undefined;
  #isTaken = false;
  /** A second attempt has waited. */
  isOver = false;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Whether an attempt may begin on it: the line is open, and nobody waits. */
  get isReady(): boolean {
    return !this.#isTaken && this.openLine !== undefined;
  }

  /** Whether the caller waits alone. If so, the line is its own until `leave`. */
  enter(): boolean {
    if (this.#isTaken || this.isOver || !this.#engine.wire.hasOneConnection) return false;
    this.#isTaken = true;
    return true;
  }

  get openLine(): Line | undefined {
    return this.#line?.isOpen ? this.#line : undefined;
  }

  async line(key: Buffer): Promise<Line> {
    return this.openLine ?? (this.#line = await this.#engine.wire.line(key, this.#engine.timeout));
  }

  leave(): void {
    this.#isTaken = false;
    if (this.isOver) this.end();
  }

  /** Others wait too, or the manager is closed. An attempt that blocks on the line does so to the end of its piece. */
  end(): void {
    this.isOver = true;
    if (this.#isTaken) return;
    this.#line?.close();
    this.#line = undefined;
  }
}
