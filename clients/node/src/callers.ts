/**
 * The pending attempts, which end when the caller's signal is aborted or the manager is closed. A signal shared by many
 * attempts gets one listener, because Node warns about a leak if there are more than ten.
 *
 * A caller's pending attempt keeps the process alive, as any request does. Nothing else in a manager does: all other
 * timers and connections are unreferenced.
 */

import type { Request } from './request.js';

interface Endable {
  readonly request: Request;
  readonly signal?: AbortSignal | undefined;
  /** Nobody awaits it: it belongs to a leader. */
  readonly isBackground: boolean;
  giveUp(reason: unknown): void;
}

interface Listener {
  readonly attempts: Set<Endable>;
  readonly aborted: () => void;
}

export class Callers {
  readonly #attempts = new Set<Endable>();
  /** Pending attempts that somebody awaits. */
  #awaited = 0;
  #keeper: NodeJS.Timeout | undefined;
  readonly #bySignal = new WeakMap<AbortSignal, Listener>();

  get size(): number {
    return this.#attempts.size;
  }

  enter(attempt: Endable): void {
    this.#attempts.add(attempt);
    if (!attempt.isBackground && this.#awaited++ === 0) {
      this.#keeper ??= setInterval(() => undefined, 2 ** 31 - 1);
      this.#keeper.ref();
    }
    const { signal } = attempt;
    if (!signal) return;
    let listener = this.#bySignal.get(signal);
    if (!listener) {
      const attempts = new Set<Endable>();
      const aborted = (): void => {
        for (const one of attempts) one.giveUp(signal.reason);
      };
      listener = { attempts, aborted };
      this.#bySignal.set(signal, listener);
      signal.addEventListener('abort', aborted, { once: true });
    }
    listener.attempts.add(attempt);
  }

  leave(attempt: Endable): void {
    this.#attempts.delete(attempt);
    if (!attempt.isBackground && --this.#awaited === 0) this.#keeper?.unref();
    const { signal } = attempt;
    const listener = signal && this.#bySignal.get(signal);
    if (!listener?.attempts.delete(attempt) || listener.attempts.size > 0) return;
    this.#bySignal.delete(signal as AbortSignal);
    signal?.removeEventListener('abort', listener.aborted);
  }

  /**
   * Starts work, and awaits it for a caller. If the caller's signal is aborted or the manager is closed, this rejects,
   * and the work continues for others.
   */
  async awaits<T>(request: Request, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    signal?.throwIfAborted();
    let giveUp = (_: unknown): void => undefined;
    const gaveUp = new Promise<never>((_, reject) => {
      giveUp = reject;
    });
    const caller: Endable = { request, signal, isBackground: false, giveUp };
    this.enter(caller);
    try {
      return await Promise.race([work(), gaveUp]);
    } finally {
      this.leave(caller);
    }
  }

  /** Ends all attempts; `reason` creates the error for each. */
  close(reason: (attempt: Endable) => unknown): void {
    for (const attempt of this.#attempts) attempt.giveUp(reason(attempt));
  }
}
