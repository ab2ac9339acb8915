/**
 * The connections of session locks. Those of one caller share a connection, so the server sees a client that holds
 * one lock and waits for another, and finds deadlocks.
 *
 * The locks of a caller are those of one `locks.session()`, or else those held in the scopes around a call. Whatever
 * was started in a scope is inside that scope too. Two such branches may wait for each other's locks without a
 * deadlock, so a call does not use a connection that has any lock from elsewhere.
 *
 * One attempt at a time uses a connection; meanwhile, another attempt by the same caller gets a new one. A connection
 * is closed with its last lock, and its end loses all of its locks.
 */

import type { Connection, Reach, Words } from './wire.js';

/** A hold. */
interface Losable {
  readonly isHeld: boolean;
  readonly _session: SessionConnection | undefined;
  _lose(why: string, gone: boolean): void;
}

/** Locks that share their connections: one for each server. */
export class Group {
  readonly connections = new Set<SessionConnection>();
}

/** A connection and the locks that end with it. Only the attempt that has taken it may call. */
export class SessionConnection {
  readonly holds = new Set<WeakRef<Losable>>();
  isTaken = true;
  /** Settles when the reply to the last call has arrived, or none will. */
  pending: Promise<void> | undefined;

  constructor(
    readonly connection: Connection,
    readonly group: Group | undefined,
  ) {}

  /** A call whose caller gives up leaves the connection open, because it may have other locks. */
  call(words: Words, timeout: number): Promise<unknown> {
    const reply = this.connection.call(words, timeout);
    const ended = (): void => {
      if (this.pending === pending) this.pending = undefined;
    };
    const pending = reply.then(ended, ended);
    this.pending = pending;
    return reply;
  }
}

export class Sessions {
  readonly #reach: Reach;
  /** The holds of the scopes around the running call. */
  readonly #around: () => readonly Losable[];
  readonly #all = new Set<SessionConnection>();
  readonly #dropped = new FinalizationRegistry<[SessionConnection, WeakRef<Losable>]>((one) => this.#remove(...one));

  constructor(reach: Reach, around: () => readonly Losable[]) {
    this.#reach = reach;
    this.#around = around;
  }

  get size(): number {
    return this.#all.size;
  }

  /**
   * A connection of the caller to the server that has the key, or a new one. The attempt ends its use with `join` or
   * `giveBack`. A leader has no caller, so it shares none. Rejects with ReplyError or ConnectionLost.
   */
  async take(key: Buffer, group: Group | undefined, isLeader: boolean): Promise<SessionConnection> {
    const { wire, timeout } = this.#reach;
    const server = await wire.serverOf(key, timeout);
    const known = group?.connections ?? (isLeader ? [] : this.#inScopes());
    for (const one of known) {
      if (one.isTaken || !one.connection.isOpen || one.connection.server !== server) continue;
      one.isTaken = true;
      return one;
    }
    const session = new SessionConnection(await wire.connect(key, timeout), group);
    this.#all.add(session);
    group?.connections.add(session);
    session.connection.onEnd(() => this.#ended(session));
    return session;
  }

  /** The connections all of whose locks are held in the scopes around the running call. */
  #inScopes(): SessionConnection[] {
    const around = new Set<Losable | undefined>(this.#around().filter((held) => held.isHeld));
    const found: SessionConnection[] = [];
    for (const held of around) {
      const session = held?._session;
      if (session && [...session.holds].every((ref) => around.has(ref.deref()))) found.push(session);
    }
    return found;
  }

  /** Ends an attempt's use of its connection, which has this lock now. Only weak references to the hold are kept. */
  join(held: Losable, session: SessionConnection): void {
    const ref = new WeakRef(held);
    session.holds.add(ref);
    session.isTaken = false;
    this.#dropped.register(held, [session, ref]);
    if (!session.connection.isOpen) this.#ended(session);
  }

  /** Removes a lock that has ended from its connection. */
  leave(held: Losable): void {
    const session = held._session;
    for (const ref of session?.holds ?? []) if (session && ref.deref() === held) this.#remove(session, ref);
  }

  /** Ends an attempt's use of its connection: at once, or when the reply to its last call has arrived. */
  giveBack(session: SessionConnection): void {
    const end = (): void => {
      session.isTaken = false;
      this.#closeUnused(session);
    };
    if (!session.pending) {
      end();
      return;
    }
    void session.pending.then(end);
    if (session.holds.size === 0) session.connection.close();
  }

  #remove(session: SessionConnection, ref: WeakRef<Losable>): void {
    session.holds.delete(ref);
    this.#closeUnused(session);
  }

  #closeUnused(session: SessionConnection): void {
    if (!session.isTaken && session.holds.size === 0) session.connection.close();
  }

  #ended(session: SessionConnection): void {
    this.#all.delete(session);
    session.group?.connections.delete(session);
    for (const ref of [...session.holds]) ref.deref()?._lose('the connection of its session has closed', true);
  }

  /** Closes the connections on which attempts wait, or whose reply is still to be read. */
  close(): void {
    for (const session of [...this.#all]) if (session.isTaken) session.connection.close();
  }
}
