/**
 * Waiting by NOTIFY: one line that is subscribed to the channel of this process, and who hears what. Messages are hints:
 * an attempt asks the server again when it hears something, and when the line is lost or comes back.
 */

import { randomBytes } from 'node:crypto';
import { now } from './clock.js';
import type { Engine } from './engine.js';
import { read, Said, type Line } from './wire.js';

const PING = 3000;

/** What one attempt hears. */
export class News {
  #heard: string[] = [];
  #wake: (() => void) | undefined;
  againAt = Infinity;

  put(kind: string): void {
    this.#heard.push(kind);
    this.#wake?.();
  }

  /** Something about the line has changed, or the attempt was cancelled. */
  stir(): void {
    this.#wake?.();
  }

  /** What was heard before a new call says nothing about it. */
  forget(): void {
    this.#heard = [];
  }

  /** The next message; undefined: the time is over, or something about the line has changed. */
  async wait(timeout: number): Promise<string | undefined> {
    if (this.#heard.length === 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(Math.max(0, timeout), 2_000_000_000)).unref();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    return this.#heard.shift();
  }
}

export class Subscription {
  readonly channel: string;
  isUp = false;
  refusal: Said | undefined;
  readonly #engine: Engine;
  readonly #byId = new Map<string, News>();
  #line: Line | undefined;
  #isRunning = false;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.channel = `${engine.wire.prefix}serverlock:${randomBytes(8).toString('hex')}`;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** Opens the line when it is the first. */
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

  /** Waits until the line is subscribed, or it is clear that it cannot be. */
  async ready(news: News, timeout: number): Promise<boolean> {
    const end = now() + timeout;
    while (!this.isUp && !this.refusal && now() < end) await news.wait(end - now());
    return this.isUp;
  }

  close(): void {
    this.#line?.close();
  }

  async #listen(key: Buffer): Promise<void> {
    let pause = 0;
    while (!this.#engine.isClosed) {
      try {
        const line = await this.#engine.wire.line(key, this.#engine.timeout);
        this.#line = line;
        const ended = new Promise<void>((resolve) => line.onEnd(resolve));
        await line.subscribe(this.channel, (message) => this.#pass(message), this.#engine.timeout);
        this.isUp = true;
        this.sendAgain();
        pause = 0;
        // A network that swallows everything is noticed by the silence.
        const timer = setInterval(() => {
          line.call(['PING'], this.#engine.timeout).catch(() => line.close());
        }, PING).unref();
        await ended;
        clearInterval(timer);
        if (!this.#engine.isClosed) this.#engine.warn('the connection for waiting was lost, and is opened again');
      } catch (thrown) {
        this.#line?.close();
        this.#line = undefined;
        const error = read(thrown);
        if (error instanceof Said) {
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

  /** Has all attempts sent again, within a second: not all at once. */
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
