/**
 * ioredis's Redis (also with Sentinel) and Cluster. After a reconnect the library resends commands that got no reply;
 * the epoch shows that.
 */

import { CLOCK } from './clock.js';
import { ConnectionLost, ReplyError, read } from './failures.js';
import { slotOf } from './slot.js';
import { asked, type Connection, noReply, text, type Wire, type Word, type Words, within } from './wire.js';

// biome-ignore lint/suspicious/noExplicitAny: any version of the library will do
type Any = any;

const MOST_HOPS = 5;

export function isIoredis(client: object): boolean {
  return typeof (client as Any).call === 'function' && 'status' in client;
}

export function ioredisWire(client: object): Wire {
  return new Ioredis(client);
}

class Ioredis implements Wire {
  readonly clock = CLOCK;
  readonly #client: Any;
  readonly isCluster: boolean;
  readonly prefix: string;
  #epoch = 0;

  constructor(client: Any) {
    this.#client = client;
    this.isCluster = client.isCluster === true;
    this.prefix = String(client.options?.keyPrefix ?? '');
    client.on('close', () => (this.#epoch += 1));
  }

  get hasOneConnection(): boolean {
    return !this.isCluster;
  }

  epoch(): number {
    return this.#epoch;
  }

  prefixed(words: Words): Words {
    if (!this.prefix) return words;
    return [words[0] as Word, ...commandOf(this.#client, text(words), this.prefix).args];
  }

  async refresh(_key?: Buffer): Promise<void> {
    if (!this.isCluster) return;
    await new Promise<void>((resolve) => this.#client.refreshSlotsCache(() => resolve()));
  }

  call(key: Buffer, words: Words, timeout: number, asBytes = false): Promise<unknown> {
    const sent = this.isCluster ? this.#routed(key, text(words), asBytes) : send(this.#client, text(words), asBytes);
    return within(sent, timeout, () => noReply(timeout, sent));
  }

  /** ioredis does not know which argument of LOCK.* is the key, so the node is chosen here. */
  async #routed(key: Buffer, words: (string | Buffer)[], asBytes: boolean): Promise<unknown> {
    let node = await this.#node(key);
    let asking = false;
    for (let hop = 1; ; hop += 1) {
      try {
        if (asking) void send(node, ['ASKING']).catch(() => undefined);
        return await send(node, words, asBytes);
      } catch (thrown) {
        const error = read(thrown);
        const moved = error instanceof ReplyError && /^(MOVED|ASK) \d+ (\S+)/.exec(error.message);
        if (!moved || hop === MOST_HOPS) throw error;
        asking = moved[1] === 'ASK';
        if (!asking) await this.refresh();
        const pool = this.#client.connectionPool;
        node = pool.getInstanceByKey(moved[2]) ?? (await this.#node(key));
      }
    }
  }

  async #node(key: Buffer): Promise<Any> {
    const cluster = this.#client;
    if (cluster.status !== 'ready') await new Promise<void>((resolve) => cluster.once('ready', resolve));
    const master = cluster.slots[slotOf(key)]?.[0];
    const node = master && cluster.connectionPool.getInstanceByKey(master);
    if (node) return node;
    const some = cluster.nodes('master')[0];
    if (!some) throw new ConnectionLost(new Error('the cluster has no masters'));
    return some;
  }

  async serverOf(key: Buffer, timeout: number): Promise<string> {
    if (!this.isCluster) return '';
    return within(this.#node(key).then(addressOf), timeout, () => noReply(timeout));
  }

  async connect(key: Buffer, timeout: number): Promise<Connection> {
    let connection: IoredisConnection | undefined;
    try {
      const source = this.isCluster ? await this.#node(key) : this.#client;
      const client = source.duplicate({
        keyPrefix: '',
        lazyConnect: true,
        enableOfflineQueue: true,
        enableReadyCheck: false,
        autoResubscribe: false,
        autoResendUnfulfilledCommands: false,
        maxRetriesPerRequest: 0,
        retryStrategy: () => null,
        reconnectOnError: null,
        commandTimeout: undefined,
        socketTimeout: undefined,
        connectTimeout: timeout,
        protocol: 2,
        readOnly: false,
      });
      connection = new IoredisConnection(client, this.isCluster ? addressOf(source) : '');
      await within(
        client.connect(),
        timeout,
        () => new ConnectionLost(new Error(`no connection within ${timeout} ms`)),
      );
      client.stream?.unref?.();
      return connection;
    } catch (error) {
      connection?.close();
      throw read(error);
    }
  }
}

const addressOf = (node: Any): string => `${node.options.host}:${node.options.port}`;

/** The command that the library's `call` builds from the words, with that prefix on the keys that it knows. */
function commandOf(client: Any, words: (string | Buffer)[], keyPrefix: string, asBytes = false): Any {
  const call = asBytes ? client.callBuffer : client.call;
  return call.call({ options: { keyPrefix }, sendCommand: (command: Any) => command }, ...words);
}

/**
 * The keys already have their prefix; the library would add it again to EVAL's keys. Its automatic pipelines would send
 * what `callBuffer` builds without its first word.
 */
function send(client: Any, words: (string | Buffer)[], asBytes = false): Promise<unknown> {
  if (!asBytes && !client.options?.keyPrefix) return asked(() => client.call(...words));
  return asked(() => client.sendCommand(commandOf(client, words, '', asBytes)));
}

class IoredisConnection implements Connection {
  readonly #client: Any;
  readonly #fail = (): void => this.close();
  readonly #ended: (() => void)[] = [];
  #isOpen = true;

  constructor(
    client: Any,
    readonly server: string,
  ) {
    this.#client = client;
    client.on('error', () => undefined);
    client.on('close', () => this.#end());
    client.on('end', () => this.#end());
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  call(words: Words, timeout: number, asBytes = false): Promise<unknown> {
    if (!this.#isOpen) return Promise.reject(new ConnectionLost(new Error('the connection is closed')));
    return within(send(this.#client, text(words), asBytes), timeout, () => noReply(timeout), this.#fail);
  }

  async subscribe(channel: string, received: (message: string) => void, timeout: number): Promise<void> {
    this.#client.on('message', (_: string, message: string) => received(message));
    await within(this.#client.subscribe(channel), timeout, () => noReply(timeout), this.#fail);
  }

  onEnd(ended: () => void): void {
    if (this.#isOpen) this.#ended.push(ended);
    else ended();
  }

  close(): void {
    // After every disconnect the library keeps the process alive for two seconds if the server sends nothing.
    if (!this.#isOpen) return;
    this.#client.disconnect();
    this.#end();
  }

  #end(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const ended of this.#ended.splice(0)) ended();
  }
}
