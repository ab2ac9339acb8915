/** The commands of an in-memory server: their arguments and replies. Keys are bytes, as text in latin1. */

import { ReplyError } from './failures.js';
import type { Ask, Client, Grant, Reply } from './memory-lock.js';
import { type PENDING, Table } from './memory-table.js';
import type { MemoryTime } from './memory-time.js';
import { MOST_HOLDERS } from './request.js';
import type { Word, Words } from './wire.js';

type Command = (words: string[], client: Client | undefined) => Reply | typeof PENDING;

export const bytesOf = (word: Word): string =>
  (word instanceof Uint8Array ? Buffer.from(word) : Buffer.from(String(word))).toString('latin1');
const textOf = (bytes: string): string => Buffer.from(bytes, 'latin1').toString();

export class Commands {
  readonly table: Table;
  readonly time: MemoryTime;
  readonly #subscribers = new Map<string, Set<Client>>();
  /** What `fenced` has written. */
  readonly #data = new Map<string, string>();
  readonly #byName: Readonly<Record<string, Command>> = {
    'LOCK.ACQUIRE': ([key, ...words], client) => this.table.acquire(askOf([key as string], words), client),
    'LOCK.MACQUIRE': (words, client) => this.table.acquire(askOf(...manyOf(words)), client),
    'LOCK.RECOVER': ([key, ...words], client) =>
      this.table.recover({ ...askOf([key as string], words), hasDetails: true }, client),
    'LOCK.EXTEND': ([key, ...words]) => this.#extend([key as string], words),
    'LOCK.MEXTEND': (words) => this.#extend(...manyOf(words)),
    'LOCK.RELEASE': ([key, token, , result]) => this.table.release(key as string, Number(token), result),
    'LOCK.MRELEASE': (words) => this.#releaseAll(...manyOf(words)),
    'LOCK.CHECK': ([key, token]) => this.table.check(key as string, Number(token)),
    'LOCK.CANCEL': ([key, id]) => this.table.cancel(key as string, id as string),
    'LOCK.INFO': ([key]) => this.#info(key as string),
    EVAL: (words) => this.#fenced(words),
    TIME: () => this.#serverTime(),
    PING: () => 'PONG',
    SUBSCRIBE: ([channel], client) => this.#subscribe(channel as string, client),
  };

  constructor(time: MemoryTime) {
    this.time = time;
    this.table = new Table(time, (channel, message) => {
      for (const client of this.#subscribers.get(channel) ?? []) client.receive(message);
    });
    time.drive(this.table);
  }

  /** Throws a ReplyError or ConnectionLost. PENDING: the connection gets the reply later. */
  execute(words: Words, client?: Client): Reply | typeof PENDING {
    this.time.activity += 1;
    const [name, ...rest] = words.map(bytesOf) as [string, ...string[]];
    const run = this.#byName[name.toUpperCase()];
    // Not "unknown command", which would mean that the module is missing.
    if (!run) throw new ReplyError(`MISCONF the server in memory has no ${name}`);
    return run(rest, client);
  }

  disconnect(client: Client): void {
    for (const clients of this.#subscribers.values()) clients.delete(client);
    this.table.disconnect(client);
  }

  #extend(keys: string[], [token, , lease]: string[]): number {
    return this.table.extend(keys, Number(token), Number(lease));
  }

  #releaseAll(keys: string[], [token]: string[]): number {
    return keys.filter((key) => this.table.release(key, Number(token)) !== 0).length;
  }

  #serverTime(): Reply {
    const micros = Math.round(this.time.serverTime * 1000);
    return [String(Math.floor(micros / 1e6)), String(micros % 1e6)];
  }

  #subscribe(channel: string, client: Client | undefined): Reply {
    const clients = this.#subscribers.get(channel) ?? new Set();
    this.#subscribers.set(channel, clients);
    if (client) clients.add(client);
    return ['subscribe', channel, 1];
  }

  #info(key: string): Reply {
    const now = this.time.now();
    const [lock, queue] = [this.table.lock(key), this.table.queue(key)];
    const live = lock.live(now);
    const [grant] = [...(live.length > 0 ? live : lock.grants)].sort((a, b) => b.ends - a.ends);
    const fields = {
      state: live.length > 0 ? 'held' : grant ? 'expired' : 'free',
      token: null,
      id: null,
      owner: null,
      ...(grant && shown(grant, now, live.length > 0)),
      waiters: queue.length,
      'oldest-wait-ms': queue[0] ? Math.trunc(now - queue[0].since) : null,
    };
    return Object.entries<Reply>(fields).flat() as Reply;
  }

  /** The script of `fenced`: the lock's key and the command's, the token, the command. */
  #fenced(words: string[]): Reply {
    const count = Number(words[1]);
    const [token, command, key, value] = words.slice(2 + count) as [string, string, string, string?];
    if (this.table.check(words[2] as string, Number(token)) === 0) return ['LOCK.LOST'];
    const before = this.#data.get(key);
    switch (`${command.toUpperCase()} ${words.length - count - 4}`) {
      case 'GET 1':
        return [before === undefined ? null : textOf(before)];
      case 'SET 2':
        this.#data.set(key, value as string);
        return ['OK'];
      case 'DEL 1':
        return [Number(this.#data.delete(key))];
      case 'INCR 1':
        this.#data.set(key, String(Number(before ?? 0) + 1));
        return [Number(this.#data.get(key))];
      default:
        throw new ReplyError(`MISCONF the server in memory runs GET, SET, DEL and INCR, not ${command}`);
    }
  }
}

/** The fields of a holder, or of the last one. A lease is rounded down, and the time until the lock is free up. */
function shown(grant: Grant, now: number, isLive: boolean): Record<string, Reply> {
  const { token, owner } = grant;
  const both = { token, owner, id: grant.id ?? null };
  if (!isLive) return { ...both, 'overdue-ms': Math.trunc(now - grant.ends) };
  return {
    ...both,
    'held-ms': Math.trunc(now - grant.granted),
    'lease-ms': Math.trunc(Math.max(0, grant.leaseEnds - now)),
    'free-in-ms': Math.trunc(grant.ends - now) + 1,
  };
}

/** The keys that follow their number, and the rest. */
function manyOf(words: string[]): [string[], string[]] {
  const count = Number(words[0]);
  return [words.slice(1, count + 1), words.slice(count + 1)];
}

function askOf(keys: string[], options: string[]): Ask {
  const ask: Ask = {
    keys,
    lease: 0,
    wait: 0,
    id: undefined,
    owner: null,
    channel: undefined,
    most: 1,
    isAlone: true,
    isSession: false,
    hasDetails: false,
    takesResult: false,
  };
  const share = (most: number): void => {
    ask.isAlone = false;
    ask.most = most;
  };
  const rest = options.values();
  const next = (): string => rest.next().value as string;
  const take: Record<string, () => void> = {
    PX: () => (ask.lease = Number(next())),
    WAIT: () => (ask.wait = Number(next())),
    ID: () => (ask.id = next()),
    OWNER: () => (ask.owner = next()),
    NOTIFY: () => (ask.channel = next()),
    SHARED: () => share(MOST_HOLDERS),
    LIMIT: () => share(Number(next())),
    SESSION: () => (ask.isSession = true),
    DETAILS: () => (ask.hasDetails = true),
    RESULT: () => (ask.takesResult = true),
  };
  for (const name of rest) take[name]?.();
  return ask;
}
