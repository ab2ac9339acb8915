/** The rules for one lock in memory: who has it, and who may have it next. Times are milliseconds. */

// The module's defaults.
export const MARGIN = 1000;
const RETENTION = 60_000;
/** How long a waiter that was notified may take to claim its grant. */
export const CLAIM = 2000;
/** How long an attempt that is not waiting keeps its place. */
export const PLACE = 10_000;
export const LONGEST_RESULT = 65_536;

export type Reply = string | number | null | Buffer | Reply[];

/** A connection to the in-memory server. */
export interface Client {
  deliver(reply: Reply | Error): void;
  receive(message: string): void;
}

/** An ACQUIRE, MACQUIRE or RECOVER. */
export interface Ask {
  readonly keys: readonly string[];
  lease: number;
  wait: number;
  id: string | undefined;
  owner: string | null;
  channel: string | undefined;
  most: number;
  isAlone: boolean;
  isSession: boolean;
  hasDetails: boolean;
  takesResult: boolean;
}

/** One holder. Others may have the lock at `ends`, a margin after the end of the lease. */
export class Grant {
  leaseEnds = 0;
  ends = 0;
  id: string | undefined;
  owner: string | null = null;
  session: Client | undefined;
  /** A waiter that has been notified, and has not claimed the grant yet. */
  claimant: Waiter | undefined;

  constructor(
    readonly token: number,
    readonly isAlone: boolean,
    readonly granted: number,
    /** Expired ones; the first is the predecessor. */
    readonly replaced: readonly Grant[],
  ) {}

  lasts(lease: number, now: number): void {
    this.leaseEnds = now + lease;
    this.ends = this.leaseEnds + MARGIN;
  }

  belongsTo(id: string | undefined): boolean {
    return id !== undefined && (id === this.id || id === this.claimant?.ask.id);
  }

  /** How long it was overdue, its token and its owner. */
  predecessor(): Reply[] {
    const [before] = this.replaced;
    return before
      ? [Math.max(0, Math.round(this.granted - before.ends)), before.token, before.owner]
      : [null, null, null];
  }
}

/** An attempt in the queue of `key`. */
export interface Waiter {
  readonly ask: Ask;
  key: string;
  readonly order: number;
  readonly since: number;
  readonly deadline: number;
  readonly client: Client | undefined;
  /** Ends one that blocks; others are notified on their channel. */
  readonly answer: ((reply: Reply | Error) => void) | undefined;
}

/** The holders of one key, and those whose lease has expired. */
export class Lock {
  grants: Grant[] = [];

  live(now: number): Grant[] {
    return this.grants.filter((grant) => grant.ends > now);
  }

  /** Drops what expired long ago. */
  forget(now: number): void {
    if (this.grants.length > 0) this.grants = this.grants.filter((grant) => grant.ends + RETENTION > now);
  }

  admits(ask: Ask, now: number): boolean {
    const live = this.live(now);
    return ask.isAlone ? live.length === 0 : live.length < ask.most && !live.some((grant) => grant.isAlone);
  }

  /** Grants the lock, in place of the holders that expired if it needs their place. */
  add(ask: Ask, token: number, now: number): Grant {
    let expired = this.grants.filter((grant) => grant.ends <= now).sort((a, b) => a.ends - b.ends);
    if (!ask.isAlone && !expired.some((grant) => grant.isAlone))
      expired = this.grants.length >= ask.most ? expired.slice(0, 1) : [];
    const grant = new Grant(token, ask.isAlone, now, expired);
    this.grants = [...this.grants.filter((one) => !expired.includes(one)), grant];
    return grant;
  }

  find(token: number): Grant | undefined {
    return this.grants.find((grant) => grant.token === token);
  }

  findId(id: string | undefined, now: number): Grant | undefined {
    return this.live(now).find((grant) => grant.belongsTo(id));
  }

  /** Ends a grant. One that nobody claimed is undone. */
  drop(grant: Grant): void {
    this.grants = this.grants.filter((one) => one !== grant);
    if (grant.claimant) this.grants.push(...grant.replaced);
  }
}
