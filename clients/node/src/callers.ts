/**
 * Who may end an attempt from outside: its caller, by a signal, and the end of the manager. A signal that many attempts
 * share gets one listener: Node warns of more than ten as of a leak.
 */

import type { Request } from './request.js';

interface Endable {
  readonly request: Request;
  readonly signal?: AbortSignal | undefined;
  giveUp(reason: unknown): void;
}

interface Listener {
  readonly attempts: Set<Endable>;
  readonly heard: () => void;
}

export class Callers {
  readonly #attempts = new Set<Endable>();
  readonly #bySignal = new WeakMap<AbortSignal, Listener>();

  enter(attempt: Endable): void {
    this.#attempts.add(attempt);
    const { signal } = attempt;
    if (!signal) return;
    let listener = this.#bySignal.get(signal);
    if (!listener) {
      const attempts = new Set<Endable>();
      const heard = (): void => attempts.forEach((one) => one.giveUp(signal.reason));
      listener = { attempts, heard };
      this.#bySignal.set(signal, listener);
      signal.addEventListener('abort', heard, { once: true });
    }
    listener.attempts.add(attempt);
  }

  leave(attempt: Endable): void {
    this.#attempts.delete(attempt);
    const { signal } = attempt;
    const listener = signal && this.#bySignal.get(signal);
    if (!listener?.attempts.delete(attempt) || listener.attempts.size > 0) return;
    this.#bySignal.delete(signal as AbortSignal);
    signal?.removeEventListener('abort', listener.heard);
  }

  /** Ends all attempts; `reason` makes the error of each. */
  close(reason: (attempt: Endable) => unknown): void {
    for (const attempt of this.#attempts) attempt.giveUp(reason(attempt));
  }
}
