/** Calls the application's hooks. An event is created only for a hook that exists: most managers have none. */

import type { Clock } from './clock.js';
import { COMMANDS } from './commands.js';
import { LockError, type LockLostError } from './errors.js';
import type { Held } from './hold.js';
import type { Hooks, LockEvent } from './options.js';
import { type Request, textsOf } from './request.js';

const eventOf = (request: Request, isPortable: boolean, held?: Held): LockEvent => ({
  keys: textsOf(request.plain),
  operation: isPortable ? request.scripted : request.command,
  held,
});
const eventOfHeld = (held: Held): LockEvent => eventOf(held._request, held._form !== COMMANDS, held);

export class HookCalls {
  readonly #hooks: Hooks;
  readonly #clock: Clock;
  readonly #callBack: (call: () => unknown) => void;

  constructor(hooks: Hooks, clock: Clock, callBack: (call: () => unknown) => void) {
    this.#hooks = hooks;
    this.#clock = clock;
    this.#callBack = callBack;
  }

  granted(held: Held): void {
    if (this.#hooks.granted) this.#callBack(() => this.#hooks.granted?.(held.key, held.waited, eventOfHeld(held)));
  }

  /** An attempt has failed, with a typed error or with its signal's reason. */
  failed(request: Request, began: number, isPortable: boolean, error: unknown, signal: AbortSignal | undefined): void {
    const waited = this.#clock.now() - began;
    const event = (): LockEvent => eventOf(request, isPortable);
    if (error instanceof LockError) this.#callBack(() => this.#hooks.refused?.(request.name, waited, error, event()));
    else if (signal?.aborted) this.#callBack(() => this.#hooks.cancelled?.(request.name, waited, event()));
  }

  /** An attempt has ended with another holder's result. */
  result(request: Request, began: number, isPortable: boolean): void {
    const waited = this.#clock.now() - began;
    this.#callBack(() => this.#hooks.result?.(request.name, waited, eventOf(request, isPortable)));
  }

  lost(held: Held, error: LockLostError): void {
    this.#callBack(() => this.#hooks.lost?.(held.key, this.#clock.now() - held._granted, error, eventOfHeld(held)));
  }

  released(held: Held, inTime: boolean): void {
    const call = (): void =>
      this.#hooks.released?.(held.key, this.#clock.now() - held._granted, inTime, eventOfHeld(held));
    if (this.#hooks.released) this.#callBack(call);
  }
}
