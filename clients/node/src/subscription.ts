/**
 * Waiting with NOTIFY: one connection that is subscribed to this process's channel, and passes each message to its
 * attempt. Messages are hints: an attempt asks again after a message, and when the connection is lost or restored.
 */

import { randomBytes } from 'node:crypto';
import { now } from './clock.js';
import { ReplyError, read } from './failures.js';
import type { Connection, Reach } from './wire.js';

const PING = 3000;

/** The messages of one attempt. */
export class News {
  #messages: string[] = [];
  #wake: (() => void) | undefined;
  againAt = Infinity;

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
        const timer = setTimeout(resolve, Math.min(Math.max(0, timeout), 2_000_000_000)).unref();
        this.#wake = () => {
          clearTimeout(timer);
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
    const news = new News();
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
    const end = now() + timeout;
    while (!this.isUp && !this.refusal && now() < end) await news.wait(end - now());
    return this.isUp;
  }

  close(): void {
    this.#isClosed = true;
    this.#connection?.close();
  }

  async #listen(key: Buffer): Promise<void> {
    let pause = 0;
    while (!this.#isClosed) {
      try {
        const connection = await this.#reach.wire.connect(key, this.#reach.timeout);
        this.#connection = connection;
        const ended = new Promise<void>((resolve) => connection.onEnd(resolve));
        await connection.subscribe(this.channel, (message) => this.#pass(message), this.#reach.timeout);
        this.isUp = true;
        this.sendAgain();
        pause = 0;
        // A missing reply reveals a network that swallows everything.
        const timer = setInterval(() => {
          connection.call(['PING'], this.#reach.timeout).catch(() => connection.close());
        }, PING).unref();
        await ended;
        clearInterval(timer);
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
      pause = Math.min(1000, pause * 2 || 50);
      await new Promise<void>((resolve) => setTimeout(resolve, pause).unref());
    }
  }

  /** Makes all attempts ask again, spread over a second. */
  sendAgain(): void {
    for (const news of this.#byId.values()) {
      news.againAt = Math.min(news.againAt, now() + (this.#byId.size > 1 ? Math.random() * 1000 : 0));
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
