/** Checks, after a grant, whether the required number of replicas have it, or wrote it to disk. */

import { LockUnavailableError } from './errors.js';
import { ConnectionLost, ReplyError, typed } from './failures.js';
import type { Request } from './request.js';
import type { Connection } from './wire.js';

/** Throws unless enough of them have the grant, which came over that connection. */
export async function confirm(connection: Connection | undefined, request: Request, patience: number): Promise<void> {
  const { replicas, replicasWithin: within } = request;
  const timeout = within + patience;
  const demand = (what: string, have: unknown, want: number): void => {
    if (typeof have === 'number' && have >= want) return;
    throw new LockUnavailableError(
      request.name,
      `${String(have)} of ${want} ${what} have the grant; the lock was released`,
    );
  };
  try {
    if (!connection) throw new ConnectionLost(new Error('the connection that got the grant has closed'));
    if (replicas) demand('replicas', await connection.call(['WAIT', replicas, Math.round(within)], timeout), replicas);
    if (request.options.fsync) {
      const reply = await connection.call(['WAITAOF', 1, replicas, Math.round(within)], timeout);
      const [local, remote] = reply as [number, number];
      demand('servers that wrote it to disk', local + remote, 1 + replicas);
    }
  } catch (error) {
    if (error instanceof ReplyError || error instanceof ConnectionLost) throw typed(error, request.name);
    throw error;
  }
}
