/**
 * The options from which a thread creates a client of its own, like the application's. Only plain data can be handed to
 * a thread, so an option with a function in it is refused, unless the thread does without it.
 */

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { LockBadArgumentError } from './errors.js';
import { ioredisWire, isIoredis } from './ioredis.js';
import { nodeRedisWire } from './node-redis.js';
import type { Wire } from './wire.js';

// biome-ignore lint/suspicious/noExplicitAny: options of any version of the libraries
type Any = any;

/** Plain data. */
export interface ClientOptions {
  readonly library: 'ioredis' | 'node-redis';
  /** The file of the library. */
  readonly file: string;
  readonly options: Any;
}

/** The thread's connections reconnect on their own, and send only lock commands. */
const NOT_NEEDED = new Set([
  'reconnectOnError',
  'reconnectStrategy',
  'retryStrategy',
  'scripts',
  'sentinelReconnectStrategy',
  'sentinelRetryStrategy',
]);
/** Which of node-redis's options, besides those of the socket, a connection needs. */
const NODE_REDIS = ['username', 'password', 'database', 'name', 'disableClientInfo', 'clientInfoTag'];

const refused = (text: string): LockBadArgumentError => new LockBadArgumentError('', `renewal is 'thread': ${text}`);

/** A copy of the data without what a thread does not need. `name` names it in the error. */
function plain(value: Any, name: string): Any {
  if (value === null || !['object', 'function', 'symbol'].includes(typeof value)) return value;
  if (value instanceof Uint8Array) return value;
  if (Array.isArray(value)) return value.map((one, at) => plain(one, `${name}[${at}]`));
  const kind = Object.getPrototypeOf(value);
  if (typeof value !== 'object' || (kind !== Object.prototype && kind !== null)) {
    const what = typeof value === 'object' ? `a ${kind?.constructor?.name}` : `a ${typeof value}`;
    throw refused(`the client's option ${name} is ${what}, which cannot be handed to a thread`);
  }
  const entries = Object.entries(value).filter(([key, one]) => !NOT_NEEDED.has(key) && one != null);
  return Object.fromEntries(entries.map(([key, one]) => [key, plain(one, name ? `${name}.${key}` : key)]));
}

/** The application's own copy of the library, as for the connections of a sentinel. */
function fileOf(...names: string[]): string {
  for (const from of [import.meta.url, process.argv[1], join(process.cwd(), 'index.js')]) {
    for (const name of names) {
      try {
        if (from) return createRequire(from).resolve(name);
      } catch {
        // elsewhere
      }
    }
  }
  throw refused(`${names.join(' or ')} cannot be found`);
}

/** The options of the application's client. Throws if a thread cannot have one like it. */
export function clientOptionsOf(client: Any, wire: Wire): ClientOptions {
  if (wire.isCluster) throw refused('a cluster cannot be renewed in a thread');
  if (isIoredis(client)) {
    return { library: 'ioredis', file: fileOf('ioredis'), options: plain(client.options ?? {}, '') };
  }
  if (!wire.hasOneConnection) throw refused('a pool cannot be renewed in a thread; pass a client');
  const { options } = client;
  if (!options || typeof client.getMasterNode === 'function')
    throw refused("node-redis's sentinel cannot be renewed in a thread");
  const given = Object.fromEntries(NODE_REDIS.map((name) => [name, options[name]]));
  // The library builds a provider from the name and password.
  if (options.credentialsProvider && given.username === undefined && given.password === undefined)
    throw refused("the client's option credentialsProvider has functions, which cannot be handed to a thread");
  const file = fileOf('@redis/client', 'redis');
  return { library: 'node-redis', file, options: plain({ ...given, socket: options.socket ?? {} }, '') };
}

/** A client that does not connect on its own: its copies do. */
export function wireFrom({ library, file, options }: ClientOptions): Wire {
  const { Redis, createClient } = createRequire(file)(file);
  if (library === 'node-redis') return nodeRedisWire(createClient(options));
  const client = new Redis({ ...options, lazyConnect: true });
  client.on('error', () => undefined);
  return ioredisWire(client);
}
