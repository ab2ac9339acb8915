/** A few connections for calls that need their own connection: blocking waits, and WAIT after a grant. */

import type { Connection, Reach } from './wire.js';

const SIZE = 8;

/** Rejects when the caller has given up. */
type Patience = <T>(work: Promise<T>) => Promise<T>;

export class Connections {
  readonly #reach: Reach;
  #free = SIZE;
  readonly #waiting: ((has: boolean) => void)[] = [];
  #idle: Connection[] = [];
  #isClosed = false;

  constructor(reach: Reach) {
    this.#reach = reach;
  }

  get hasWaiters(): boolean {
    return this.#waiting.length > 0;
  }

  /** How many connections are in use, and how many attempts are waiting for one. */
  get counts(): { slots: number; queue: number } {
    return { slots: SIZE - this.#free, queue: this.#waiting.length };
  }

  /** A connection; undefined if none became free in time. Rejects with ConnectionLost. */
  async take(key: Buffer, timeout: number, unlessGivenUp: Patience): Promise<Connection | undefined> {
    if (this.#free > 0) this.#free -= 1;
    else if (!(await this.#turn(timeout, unlessGivenUp))) return undefined;
    // In a cluster, each key has its own server: a connection kept for another server is useless.
    while (!this.#reach.wire.isCluster) {
      const connection = this.#idle.pop();
      if (!connection) break;
      if (connection.isOpen) return connection;
    }
    try {
      return await this.#reach.wire.connect(key, this.#reach.timeout);
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  giveBack(connection: Connection): void {
    if (connection.isOpen && !this.#reach.wire.isCluster && !this.#isClosed) this.#idle.push(connection);
    else connection.close();
    this.#leave();
  }

  close(): void {
    this.#isClosed = true;
    for (const connection of this.#idle) connection.close();
    this.#idle = [];
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next) next(true);
    else this.#free += 1;
  }

  async #turn(timeout: number, unlessGivenUp: Patience): Promise<boolean> {
    let stop = (): void => undefined;
    const turn = new Promise<boolean>((resolve) => {
      const done = (has: boolean): void => {
        cancel();
        resolve(has);
      };
      stop = () => {
        const at = this.#waiting.indexOf(done);
        if (at < 0) return; // its turn has come
        this.#waiting.splice(at, 1);
        done(false);
      };
      const cancel = this.#reach.clock.after(timeout, stop);
      this.#waiting.push(done);
    });
    try {
      return await unlessGivenUp(turn);
    } catch (error) {
      stop();
      if (await turn) this.#leave();
      throw error;
    }
  }
}
