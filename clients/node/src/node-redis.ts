/** node-redis clients, pools, clusters and sentinels. They never resend a command that was written. */

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { CLOCK } from './clock.js';
import { ConnectionLost, read } from './failures.js';
import { Semaphore } from './semaphore.js';
import { asked, type Connection, noReply, text, type Wire, type Words, within } from './wire.js';

// biome-ignore lint/suspicious/noExplicitAny: the library has as many types as modules
type Any = any;

export function isNodeRedis(client: object): boolean {
  return typeof (client as Any).sendCommand === 'function' && !('status' in client);
}

export function nodeRedisWire(client: object): Wire {
  return new NodeRedis(client);
}

/**
 * The application's own copy of the library. A package folder that npm has linked is outside the application, and
 * does not find the library next to itself.
 */
export async function libraryOf(): Promise<Any> {
  for (const from of [import.meta.url, process.argv[1], join(process.cwd(), 'index.js')]) {
    for (const name of ['@redis/client', 'redis']) {
      try {
        if (from) return createRequire(from)(name);
      } catch {
        // elsewhere
      }
    }
  }
  throw new ConnectionLost(new Error('@redis/client cannot be found'));
}

/** This package applies the time-outs of commands itself. */
const PATIENT = { timeout: undefined };
/** Replies whose strings are Buffers: the library's type of a string is the byte that begins it. */
const AS_BYTES = { ...PATIENT, typeMapping: { [Buffer.from('$').readUInt8()]: Buffer } };

/** The commands without a key that are sent to the server of a key. */
const KEYLESS = new Set(['TIME', 'INFO']);

type Kind = 'client' | 'pool' | 'cluster' | 'sentinel';

function kindOf(client: Any): Kind {
  if (typeof client.getMasterNode === 'function') return 'sentinel';
  if (typeof client.nodeClient === 'function') return 'cluster';
  return typeof client.execute === 'function' && 'totalClients' in client ? 'pool' : 'client';
}

class NodeRedis implements Wire {
  readonly clock = CLOCK;
  readonly #client: Any;
  readonly #kind: Kind;
  readonly #semaphore = new Semaphore();
  readonly prefix = '';

  constructor(client: object) {
    this.#client = client;
    this.#kind = kindOf(client);
  }

  get isCluster(): boolean {
    return this.#kind === 'cluster';
  }

  get hasOneConnection(): boolean {
    return this.#kind === 'client' || this.#kind === 'sentinel';
  }

  epoch(): number {
    return 0;
  }

  prefixed(words: Words): Words {
    return words;
  }

  /** The library updates its map of the cluster when a node redirects a command, so this sends a command. */
  async refresh(key: Buffer): Promise<void> {
    await this.call(key, ['LOCK.CHECK', key, 0], 1000).catch(() => undefined);
  }

  call(key: Buffer, words: Words, timeout: number, asBytes = false): Promise<unknown> {
    const terms = asBytes ? AS_BYTES : PATIENT;
    if (this.#kind === 'pool') return this.#pooled(words, timeout, terms);
    // A signal stops a command that is still unwritten when its time is up. A signal costs more than everything else,
    // and a connected client, which writes at once, needs none.
    const waiting = this.#client.isReady === true && this.#kind === 'client' ? undefined : new AbortController();
    const options = waiting ? { ...terms, abortSignal: waiting.signal } : terms;
    const sent = asked(() => this.#send(key, text(words), options));
    return within(sent, timeout, () => {
      waiting?.abort();
      return noReply(timeout, sent);
    });
  }

  /** A call that gets no reply in time gives up its turn, because the connection may never answer. */
  #pooled(words: Words, timeout: number, terms: object): Promise<unknown> {
    const waiting = new AbortController();
    let sent: Promise<unknown> | undefined;
    let leave = (): void => undefined;
    const reply = new Promise<unknown>((resolve, reject) => {
      leave = this.#semaphore.take(() => {
        sent = asked(() => this.#client.sendCommand(text(words), { ...terms, abortSignal: waiting.signal }));
        sent.then(resolve, reject);
      });
    });
    const done = within(reply, timeout, () => {
      waiting.abort();
      return noReply(timeout, sent);
    });
    done.then(leave, leave);
    return done;
  }

  async #send(key: Buffer, words: (string | Buffer)[], options: object): Promise<unknown> {
    if (this.#kind === 'cluster') {
      // The library sends a command that it knows to have no key to any node, or to all of them.
      if (!KEYLESS.has(String(words[0]))) return this.#client.sendCommand(key, false, words, options);
      return (await this.#client.getNodeClientForKey(key)).sendCommand(words, options);
    }
    if (this.#kind === 'sentinel') return this.#client.sendCommand(false, words, options);
    return this.#client.sendCommand(words, options);
  }

  async serverOf(key: Buffer, timeout: number): Promise<string> {
    if (!this.isCluster) return '';
    const node: Promise<Any> = asked(() => this.#client.getNodeClientForKey(key));
    return within(node.then(addressOf), timeout, () => noReply(timeout));
  }

  async connect(key: Buffer, timeout: number): Promise<Connection> {
    try {
      const client = await this.#duplicate(key, timeout);
      const connection = new NodeRedisConnection(client, this.isCluster ? addressOf(client) : '');
      try {
        await within(
          client.connect(),
          timeout,
          () => new ConnectionLost(new Error(`no connection within ${timeout} ms`)),
        );
        client.unref?.();
      } catch (error) {
        connection.close();
        throw error;
      }
      return connection;
    } catch (error) {
      throw read(error);
    }
  }

  async #duplicate(key: Buffer, timeout: number): Promise<Any> {
    const client = this.#client;
    const own = (socket: object): object => ({
      RESP: 2,
      disableOfflineQueue: true,
      clientSideCache: undefined,
      maintNotifications: 'disabled',
      pingInterval: undefined,
      socket: {
        ...socket,
        reconnectStrategy: false,
        connectTimeout: timeout,
        socketTimeout: undefined,
        keepAlive: true,
      },
      commandOptions: { timeout: undefined },
    });
    const copy = (source: Any): Any => source.duplicate(own(source.options?.socket ?? {}));
    switch (this.#kind) {
      case 'pool':
        return client.execute(copy);
      case 'cluster':
        return copy(await client.getNodeClientForKey(key));
      case 'sentinel': {
        // The sentinel does not expose its options; a client of its pool has them.
        const master = await client.getMasterNode();
        if (!master) throw new ConnectionLost(new Error('the sentinels report no master'));
        const { createClient } = await libraryOf();
        return createClient({ ...this.#nodeOptions(), ...own({ host: master.host, port: master.port }) });
      }
      default:
        return copy(client);
    }
  }

  #nodeOptions(): object {
    return this.#client._self?.nodeClientOptions ?? {};
  }
}

function addressOf(node: Any): string {
  const { host, port } = node.options.socket;
  return `${host}:${port}`;
}

class NodeRedisConnection implements Connection {
  readonly #client: Any;
  readonly #fail = (): void => this.close();
  readonly #ended: (() => void)[] = [];
  #isOpen = true;

  constructor(
    client: Any,
    readonly server: string,
  ) {
    this.#client = client;
    const end = (): void => {
      if (!this.#isOpen) return;
      this.#isOpen = false;
      if (client.isOpen) client.destroy();
      for (const ended of this.#ended.splice(0)) ended();
    };
    client.on('error', end);
    client.on('end', end);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  call(words: Words, timeout: number, asBytes = false): Promise<unknown> {
    if (!this.#isOpen) return Promise.reject(new ConnectionLost(new Error('the connection is closed')));
    const sent = asked(() => this.#client.sendCommand(text(words), asBytes ? AS_BYTES : PATIENT));
    return within(sent, timeout, () => noReply(timeout), this.#fail);
  }

  async subscribe(channel: string, received: (message: string) => void, timeout: number): Promise<void> {
    await within(this.#client.subscribe(channel, received), timeout, () => noReply(timeout), this.#fail);
  }

  onEnd(ended: () => void): void {
    if (this.#isOpen) this.#ended.push(ended);
    else ended();
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    if (this.#client.isOpen) this.#client.destroy();
    for (const ended of this.#ended.splice(0)) ended();
  }
}
