/**
 * Waiting with NOTIFY: one connection that is subscribed to this process's channel, and passes each message to its
 * attempt. Messages are hints: an attempt asks again after a message, and when the connection is lost or restored.
 */

import { randomBytes } from 'node:crypto';
import { type Clock, pause } from './clock.js';
import { ReplyError, read } from './failures.js';
import type { Connection, Reach } from './wire.js';

const PING = 3000;

/** The messages of one attempt. */
export class News {
  readonly #clock: Clock;
  #messages: string[] = [];
  #wake: (() => void) | undefined;
  againAt = Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  put(kind: string): void {
    this.#messages.push(kind);
    this.#wake?.();
  }

  /** Something about the connection has changed, or the attempt was cancelled. */
  stir(): void {
    this.#wake?.();
  }

  /** Called before a new call, which earlier messages do not concern. */
  forget(): void {
    this.#messages = [];
  }

  /** The next message; undefined: the time is up, or something about the connection has changed. */
  async wait(timeout: number): Promise<string | undefined> {
    if (this.#messages.length === 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.#clock.after(timeout, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
      this.#wake = undefined;
    }
    return this.#messages.shift();
  }
}

export class Subscription {
  readonly channel: string;
  isUp = false;
  refusal: ReplyError | undefined;
  readonly #reach: Reach;
  readonly #byId = new Map<string, News>();
  #connection: Connection | undefined;
  #isRunning = false;
  #isClosed = false;

  constructor(
    reach: Reach,
    readonly warn: (text: string) => void,
  ) {
    this.#reach = reach;
    this.channel = `${reach.wire.prefix}serverlock:${randomBytes(8).toString('hex')}`;
  }

  get isRefused(): boolean {
    return !this.isUp && this.refusal !== undefined;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** Opens the connection for the first attempt. */
  register(id: string, key: Buffer): News {
    const news = new News(this.#reach.clock);
    this.#byId.set(id, news);
    if (!this.#isRunning) {
      this.#isRunning = true;
      void this.#listen(key);
    }
    return news;
  }

  unregister(id: string): void {
    this.#byId.delete(id);
  }

  /** Waits until the connection is subscribed, or clearly cannot be. */
  async ready(news: News, timeout: number): Promise<boolean> {
    const end = this.#reach.clock.now() + timeout;
    while (!this.isUp && !this.refusal && this.#reach.clock.now() < end) await news.wait(end - this.#reach.clock.now());
    return this.isUp;
  }

  close(): void {
    this.#isClosed = true;
    this.#connection?.close();
  }

  async #listen(key: Buffer): Promise<void> {
    let rest = 0;
    while (!this.#isClosed) {
      try {
        const connection = await this.#reach.wire.connect(key, this.#reach.timeout);
        this.#connection = connection;
        const ended = new Promise<void>((resolve) => connection.onEnd(resolve));
        await connection.subscribe(this.channel, (message) => this.#pass(message), this.#reach.timeout);
        this.isUp = true;
        this.sendAgain();
        rest = 0;
        // A missing reply reveals a network that swallows everything.
        this.#ping(connection);
        await ended;
        if (!this.#isClosed) this.warn('the connection for waiting was lost; opening a new one');
      } catch (thrown) {
        this.#connection?.close();
        this.#connection = undefined;
        const error = read(thrown);
        if (error instanceof ReplyError) {
          this.refusal = error;
          this.#isRunning = false;
          this.#stir();
          return;
        }
      }
      this.isUp = false;
      this.#stir();
      rest = Math.min(1000, rest * 2 || 50);
      await pause(this.#reach.clock, rest);
    }
  }

  #ping(connection: Connection): void {
    this.#reach.clock.after(PING, () => {
      if (!connection.isOpen) return;
      connection.call(['PING'], this.#reach.timeout).catch(() => connection.close());
      this.#ping(connection);
    });
  }

  /** Makes all attempts ask again, spread over a second. */
  sendAgain(): void {
    for (const news of this.#byId.values()) {
      news.againAt = Math.min(news.againAt, this.#reach.clock.now() + (this.#byId.size > 1 ? Math.random() * 1000 : 0));
      news.stir();
    }
  }

  #stir(): void {
    for (const news of this.#byId.values()) news.stir();
  }

  /** `granted <id> <key>` */
  #pass(message: string): void {
    const [kind, id] = message.split(' ', 2);
    if (kind !== undefined && id !== undefined) this.#byId.get(id)?.put(kind);
  }
}
