/** The options of a lock that its request is built from. */

/** What a lock asks for. Durations are milliseconds. */
export interface LockTerms {
  /** How long to wait in the queue; Infinity: for ever. Default: 0, the attempt is refused at once. */
  wait?: number;
  /** A label for people, 1 to 128 visible ASCII characters. It grants nothing. Default: none. */
  owner?: string;
  /** The lock ends with a connection of its own, one second after it. Needs the module. Default: false. */
  session?: boolean;
  /** Fill `held.predecessor`. Default: false. */
  details?: boolean;
  /** This many replicas must have the grant within `replicasWithin`, or it is given back. Default: 0. */
  replicas?: number;
  /** Default: 1000. */
  replicasWithin?: number;
  /** This server, and as many replicas as `replicas` says, must have the grant on disk (WAITAOF). Default: false. */
  fsync?: boolean;
  /** The lock is not free for others before that time, however soon it is released. Default: 0. */
  atLeast?: number;
  /** The lease is no longer renewed after that time. Default: Infinity. */
  maxHold?: number;
}

/** @internal */
export const LOCK_OPTIONS: Readonly<Record<keyof LockTerms | 'onLost', true>> = {
  wait: true,
  owner: true,
  session: true,
  details: true,
  replicas: true,
  replicasWithin: true,
  fsync: true,
  atLeast: true,
  maxHold: true,
  onLost: true,
};
