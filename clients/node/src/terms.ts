/** The options of a lock that its request is built from. */

/** What a lock asks for. Durations are milliseconds. */
export interface LockTerms {
  /** How long to wait in the queue; Infinity: forever. Default: 0, which refuses at once if the lock is taken. */
  wait?: number;
  /**
   * A label for humans, 1 to 128 visible ASCII characters; null sends none. It grants no permissions. Default:
   * `host:pid` of this process.
   */
  owner?: string | null;
  /**
   * A caller that already holds this lock gets the same hold again: within `run`, and in whatever was started there.
   * Default: false.
   */
  reentrant?: boolean;
  /**
   * The lock ends one second after its connection closes; the session locks of a caller share one. Needs the module.
   * Default: false.
   */
  session?: boolean;
  /** Fill `held.predecessor`. Default: false. */
  details?: boolean;
  /** This many replicas must have the grant within `replicasWithin`, or the lock is released. Default: 0. */
  replicas?: number;
  /** Default: 1000. */
  replicasWithin?: number;
  /** This server and `replicas` replicas must have the grant on disk (WAITAOF). Default: false. */
  fsync?: boolean;
  /** Others cannot get the lock for this long, however soon it is released. Default: 0. */
  atLeast?: number;
  /** The lease is not renewed after this long. Default: Infinity. */
  maxHold?: number;
}

/** @internal */
export const LOCK_OPTIONS: Readonly<Record<keyof LockTerms | 'onLost', true>> = {
  wait: true,
  owner: true,
  reentrant: true,
  session: true,
  details: true,
  replicas: true,
  replicasWithin: true,
  fsync: true,
  atLeast: true,
  maxHold: true,
  onLost: true,
};
