/**
 * An in-memory lock server, for applications' unit tests.
 *
 *     import { Server } from 'serverlock/testing';
 *
 *     const server = new Server();
 *     const locks = server.locks(); // pass it to the code under test, in place of new Locks(client)
 *     await server.clock.advance(30_000); // time stands still until the test moves it
 */

import { type Key, msOf } from './checks.js';
import { LockBadArgumentError } from './errors.js';
import { read } from './failures.js';
import type { Held } from './hold.js';
import { Locks, type RedisClient } from './locks.js';
import { Commands } from './memory-commands.js';
import { MemoryTime } from './memory-time.js';
import { MemoryWire, nameOf } from './memory-wire.js';
import type { ManagerOptions } from './options.js';
import { keyOf, shown } from './request.js';
import type { Wire } from './wire.js';

/** Codes after which nothing is sent again. */
const REFUSALS = { unavailable: 'CLOCK', denied: 'NOAUTH' };

/** The time of an in-memory server, and of its managers. It stands still until `advance` moves it. */
export class Clock {
  readonly #time: MemoryTime;

  private constructor(time: MemoryTime) {
    this.#time = time;
  }

  /** @internal */
  static _of(time: MemoryTime): Clock {
    return new Clock(time);
  }

  /** The server's time, in milliseconds since the beginning of 1970. */
  now(): number {
    return this.#time.serverTime;
  }

  /**
   * Moves the time by that many milliseconds, and carries out everything that falls due on the way, in
   * chronological order. Resolves once the managers and the callbacks have finished what that caused.
   */
  async advance(ms: number): Promise<void> {
    await this.#time.advance(msOf(ms, 'ms', '', 0));
  }

  /** Resolves once everything has been done that needs no time, such as joining a queue. */
  async settle(): Promise<void> {
    await this.#time.settle();
  }
}

/** The production manager, over an in-memory server. */
class MemoryLocks extends Locks {
  /** @internal */
  override _wireOf(commands: unknown): Wire {
    return new MemoryWire(commands as Commands);
  }
}

/** An in-memory lock server. Its managers behave like several processes. */
export class Server {
  /** The time of the server and its managers. */
  readonly clock: Clock;
  readonly #commands: Commands;

  constructor() {
    const time = new MemoryTime();
    this.#commands = new Commands(time);
    this.clock = Clock._of(time);
  }

  /** A manager, with the options of `Locks` except for `renewal`. */
  locks(options: Omit<ManagerOptions, 'renewal'> = {}): Locks {
    const { renewal = 'loop' } = (options ?? {}) as ManagerOptions;
    if (renewal !== 'loop') throw new LockBadArgumentError('', 'renewal is not for a server in memory');
    return new MemoryLocks(this.#commands as unknown as RedisClient, options);
  }

  /**
   * The lease of each holder of the key ends now, on the server, and the next waiter gets the lock. The old holder
   * finds out as in production: on its next renewal, or from `verify`, `extend` or `release`.
   */
  expire(key: Key): void {
    this.#commands.time.activity += 1;
    this.#commands.table.expire(nameOf(keyOf(key)));
  }

  /** The hold is lost: its holder is notified at once, and the next waiter gets the lock. */
  lose(hold: Held): void {
    const { wire } = hold._keeper;
    if (!(wire instanceof MemoryWire) || wire.commands !== this.#commands)
      throw new LockBadArgumentError(hold.key, 'hold belongs to another server');
    this.#commands.time.activity += 1;
    hold._lose('the test took it away', true);
    for (const key of hold._request.keys) this.#commands.table.release(nameOf(key), hold.token);
  }

  /**
   * Attempts for the key fail with an error of this kind, until `allow`. Holders keep the lock until their lease ends:
   * no renewal succeeds.
   */
  refuse(key: Key, kind: 'unavailable' | 'denied' = 'unavailable'): void {
    const bytes = keyOf(key);
    if (!Object.hasOwn(REFUSALS, kind))
      throw new LockBadArgumentError(shown([bytes]), `kind is ${String(kind)}, neither 'unavailable' nor 'denied'`);
    this.#commands.time.activity += 1;
    this.#commands.table.refuse(nameOf(bytes), read(new Error(`${REFUSALS[kind]} the test refuses this key`)));
  }

  /** Ends `refuse`. */
  allow(key: Key): void {
    this.#commands.table.refused.delete(nameOf(keyOf(key)));
  }

  /** How many attempts are waiting in the key's queue. One for several keys waits in the queue of one of them. */
  waiting(key: Key): number {
    return this.#commands.table.queue(nameOf(keyOf(key))).length;
  }
}
