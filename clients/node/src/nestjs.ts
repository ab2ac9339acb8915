/**
 * NestJS: a module that provides the application's `Locks`, and a decorator for methods that @nestjs/schedule calls.
 *
 *     @Module({ imports: [ScheduleModule.forRoot(), LocksModule.forRoot(new Locks(client))], providers: [Reports] })
 *
 *     @Cron('0 * * * *')
 *     @OncePerTick(3_600_000)
 *     async hourly(held: HeldOnce) {} // in one of the processes
 *
 * The decorator is `locks.once`, for methods that are called by @Cron, @Interval or anything else. It may be above or
 * below these.
 */

import { type DynamicModule, Inject, Module, type ModuleMetadata, type OnApplicationShutdown } from '@nestjs/common';
import { optionsOf } from './checks.js';
import { LockMisuseError } from './errors.js';
import type { HeldOnce } from './hold.js';
import { Locks } from './locks.js';
import { type Once, type Outcome, scheduleOf } from './once.js';
import { ONCE_OPTIONS, type OnceOptions } from './options.js';
import { keyOf } from './request.js';

/** Options of a decorated method. Durations are milliseconds. */
export interface OncePerTickOptions extends OnceOptions {
  /** The lock's key. Default: `Class.method`. Set it if a minifier changes the names of classes. */
  key?: string;
  /**
   * Ticks begin this long after multiples of the period, by the server's clock in UTC. Set it if the method is called
   * about halfway between two multiples: for example 30 minutes for an hourly `30 * * * *`. Default: 0.
   */
  offset?: number;
}

const OPTIONS: Readonly<Record<keyof OncePerTickOptions, true>> = { ...ONCE_OPTIONS, key: true, offset: true };

/** The property of a provider that Nest sets to the application's Locks. */
const LOCKS = Symbol('Locks of serverlock');

// biome-ignore lint/suspicious/noExplicitAny: a method may have any arguments
type Method = (this: any, ...args: any[]) => any;
type Owner = { [LOCKS]?: Locks };

/**
 * One of the processes that call the method for a tick runs it. The method gets the lock as its argument, for
 * `held.check()`, the fencing token and the signal. A call resolves to the Outcome of `once`: whether the method ran
 * here, and what it returned. If the process that runs it dies, one that calls the method after `lease` runs it again,
 * so have Nest call it several times per period.
 */
export function OncePerTick(period: number, options: OncePerTickOptions = {}): MethodDecorator {
  optionsOf(options, '', OPTIONS);
  const { key: given, offset, ...rest } = options;
  return (target: object, name: string | symbol, descriptor: PropertyDescriptor) => {
    const key = given ?? `${target.constructor.name}.${String(name)}`;
    const method = descriptor.value as Method;
    scheduleOf(keyOf(key), period, rest, '', offset); // checks them now, and not at three in the morning
    const known = new WeakMap<Locks, Once>();
    const onceOf = (locks: Locks | undefined): Once => {
      if (!locks)
        throw new LockMisuseError(`'${key}'`, 'its class has no Locks: import LocksModule, and let Nest build it');
      const once = known.get(locks) ?? locks._once(key, period, rest, offset);
      known.set(locks, once);
      return once;
    };
    descriptor.value = async function (this: Owner): Promise<Outcome<unknown>> {
      return onceOf(this[LOCKS]).run((_, held: HeldOnce) => method.call(this, held));
    };
    // Those of decorators that came first, such as @Cron.
    for (const tag of Reflect.getMetadataKeys(method))
      Reflect.defineMetadata(tag, Reflect.getMetadata(tag, method), descriptor.value);
    Inject(Locks)(target, LOCKS);
    return descriptor;
  };
}

/** How to build the Locks from other providers. */
export interface LocksModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  // biome-ignore lint/suspicious/noExplicitAny: as in Nest's FactoryProvider
  useFactory: (...providers: any[]) => Locks | Promise<Locks>;
  /** The providers that `useFactory` gets. */
  // biome-ignore lint/suspicious/noExplicitAny: as in Nest's FactoryProvider
  inject?: any[];
}

/** Provides the application's `Locks` to all modules, and closes it when the application shuts down. */
export class LocksModule implements OnApplicationShutdown {
  /** @internal */ readonly _locks!: Locks;

  static forRoot(locks: Locks): DynamicModule {
    return LocksModule.forRootAsync({ useFactory: () => locks });
  }

  static forRootAsync({ imports = [], useFactory, inject = [] }: LocksModuleAsyncOptions): DynamicModule {
    const providers = [{ provide: Locks, useFactory, inject }];
    return { module: LocksModule, global: true, imports, providers, exports: [Locks] };
  }

  onApplicationShutdown(): void {
    this._locks.close();
  }
}

Module({})(LocksModule);
Inject(Locks)(LocksModule.prototype, '_locks');
