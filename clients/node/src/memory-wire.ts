/** A manager's connections to an in-memory server. */

import { ConnectionLost } from './failures.js';
import { bytesOf, type Commands } from './memory-commands.js';
import type { Client, Reply } from './memory-lock.js';
import { PENDING } from './memory-table.js';
import type { MemoryTime } from './memory-time.js';
import type { Connection, Wire, Words } from './wire.js';

class MemoryConnection implements Connection, Client {
  readonly server = '';
  readonly #commands: Commands;
  #isOpen = true;
  #received: ((message: string) => void) | undefined;
  /** The call that is blocked. */
  #blocked: { resolve(reply: Reply): void; reject(error: Error): void } | undefined;
  readonly #ended: (() => void)[] = [];

  constructor(commands: Commands) {
    this.#commands = commands;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  async call(words: Words): Promise<unknown> {
    if (!this.#isOpen) throw new ConnectionLost(new Error('the connection is closed'));
    const reply = this.#commands.execute(words, this);
    if (reply !== PENDING) return reply;
    return new Promise((resolve, reject) => {
      this.#blocked = { resolve, reject };
    });
  }

  deliver(reply: Reply | Error): void {
    const blocked = this.#blocked;
    this.#blocked = undefined;
    if (reply instanceof Error) blocked?.reject(reply);
    else blocked?.resolve(reply);
  }

  async subscribe(channel: string, received: (message: string) => void): Promise<void> {
    this.#received = received;
    await this.call(['SUBSCRIBE', channel]);
  }

  receive(message: string): void {
    this.#received?.(message);
  }

  onEnd(ended: () => void): void {
    if (this.#isOpen) this.#ended.push(ended);
    else ended();
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#commands.disconnect(this);
    this.deliver(new ConnectionLost(new Error('the connection is closed')));
    for (const ended of this.#ended.splice(0)) ended();
  }
}

/** Stands in for the application's client. */
export class MemoryWire implements Wire {
  readonly isCluster = false;
  /** So every wait is in the queue with NOTIFY, whether it is the only one or not. */
  readonly hasOneConnection = false;
  readonly prefix = '';
  readonly commands: Commands;

  constructor(commands: Commands) {
    this.commands = commands;
  }

  get clock(): MemoryTime {
    return this.commands.time;
  }

  async call(_key: Buffer, words: Words): Promise<unknown> {
    return this.commands.execute(words);
  }

  async connect(): Promise<Connection> {
    return new MemoryConnection(this.commands);
  }

  async serverOf(): Promise<string> {
    return '';
  }

  epoch(): number {
    return 0;
  }

  async refresh(): Promise<void> {
    // There is no cluster.
  }

  prefixed(words: Words): Words {
    return words;
  }
}

export const nameOf = (key: Buffer): string => bytesOf(key);
