/** What the attempts of one manager share. */

import type { Blocking } from './blocking.js';
import type { Callers } from './callers.js';
import type { Connections } from './connections.js';
import type { ReplyError } from './failures.js';
import type { Form } from './form.js';
import type { Portable } from './portable.js';
import type { Request } from './request.js';
import type { Sessions } from './sessions.js';
import type { Subscription } from './subscription.js';
import type { Reach } from './wire.js';

export interface Resources extends Reach {
  readonly callers: Callers;
  readonly connections: Connections;
  readonly blocking: Blocking;
  readonly sessions: Sessions;
  readonly subscription: Subscription;
  readonly portable: Portable;
  /** Resolves once the thread that renews has started. undefined: there is nothing to wait for. */
  readonly starting: Promise<void> | undefined;
  /** Whether to wait with NOTIFY. */
  notifies: boolean;
  /** Whether NOTIFY has worked before. */
  notifyWorks: boolean;
  /** Whether LOCK.* was unknown to the server when last tried. */
  isPortable: boolean;
  /** Whether an attempt may try the module now. */
  readonly mayBeLoaded: boolean;
  asksForModule(): boolean;
  missModule(error: ReplyError): void;
  /** `mayStillRun`: a copy of the ACQUIRE was never answered. */
  cancel(request: Request, id: string, form: Form, isReachable: boolean, mayStillRun: boolean): Promise<void>;
}
