/**
 * node-cron 4's RunCoordinator: of the processes whose clocks reach a fire of a `distributed` task, one runs it.
 *
 *     cron.setRunCoordinator(new LockCoordinator(locks));
 *     cron.schedule('0 3 * * *', nightly, { name: 'nightly', distributed: true });
 *
 * Each fire has its own lock, which is renewed while the task runs. Nobody else gets it until the fire's lease, counted
 * from the grant, has passed, even if the task ends sooner: clocks may differ by that much.
 *
 * node-cron asks once per fire in each process. So a fire whose process dies does not run again; the next fire runs in
 * another process.
 */

import { functionOf, optionsOf } from './checks.js';
import { LockBadArgumentError, type LockLostError, LockRefusedError } from './errors.js';
import type { Held } from './hold.js';
import type { Locks } from './locks.js';
import type { LockOptions } from './options.js';

/** The part of a task's context that is needed here. */
export interface FireContext {
  date: Date;
  task?: { name?: string } | undefined;
}

/** Options of a coordinator. Durations are milliseconds. */
export interface CoordinatorOptions extends Pick<LockOptions, 'owner' | 'replicas' | 'replicasWithin' | 'fsync'> {
  /** Comes before a fire's name in the lock's key. Default: `cron:`. */
  prefix?: string;
  /**
   * The lock is not renewed after this long. Set it for background tasks: if their process dies, node-cron does not say
   * that the run is over. Default: Infinity.
   */
  maxHold?: number;
  /** Called once for each lock that is lost while its task runs; node-cron cannot stop the task. */
  onLost?: (key: string, error: LockLostError) => void;
}

const OPTIONS: Readonly<Record<keyof CoordinatorOptions, true>> = {
  prefix: true,
  owner: true,
  replicas: true,
  replicasWithin: true,
  fsync: true,
  maxHold: true,
  onLost: true,
};

/** Pass it to node-cron's `setRunCoordinator`, or to a task as `runCoordinator`. */
export class LockCoordinator {
  readonly #locks: Locks;
  readonly #prefix: string;
  readonly #options: LockOptions;
  readonly #onLost: CoordinatorOptions['onLost'];
  /** The fires that run here, by node-cron's names for them. */
  readonly #running = new Map<string, Held>();

  constructor(locks: Locks, options: CoordinatorOptions = {}) {
    optionsOf(options, '', OPTIONS);
    const { prefix = 'cron:', onLost, ...rest } = options;
    if (typeof prefix !== 'string') throw new LockBadArgumentError('', `prefix is ${String(prefix)}, not a string`);
    functionOf(onLost, 'onLost', '');
    this.#locks = locks;
    this.#prefix = prefix;
    this.#options = rest;
    this.#onLost = onLost;
    this.#lockOf('', 30_000); // checks the options now, and not at three in the morning
  }

  /**
   * Called by node-cron: whether this process runs the fire. Rejects if that is unknown, and then node-cron skips the
   * fire. `ttlMs` is the task's `distributedLease`, by default 30 s.
   */
  async shouldRun(key: string, ttlMs: number): Promise<boolean> {
    try {
      this.#running.set(key, await this.#lockOf(key, ttlMs).acquire());
      return true;
    } catch (error) {
      if (error instanceof LockRefusedError) return false;
      throw error;
    }
  }

  /** Called by node-cron when the run has ended, whether it succeeded or failed. */
  async onComplete(key: string): Promise<void> {
    const held = this.#running.get(key);
    this.#running.delete(key);
    await held?.release();
  }

  /**
   * The lock of the fire that a task is running, for its fencing token, `check` and `signal`. undefined: this process
   * does not hold it, for example because the task was started by `execute`, or runs in a process of its own.
   */
  held(context: FireContext): Held | undefined {
    return this.#running.get(`${context.task?.name}:${context.date.toISOString()}`);
  }

  #lockOf(key: string, ttlMs: number) {
    return this.#locks.lock(this.#prefix + key, ttlMs, {
      ...this.#options,
      atLeast: ttlMs,
      onLost: (held) => this.#onLost?.(key, held.lost as LockLostError),
    });
  }
}
