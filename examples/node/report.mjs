import { createClient } from 'redis';
import { Locks } from 'serverlock';

// A connection that swallows everything is noticed after 10 s, and replaced.
const reconnectStrategy = (tries) => Math.min(50 * 2 ** tries, 2000);
const client = createClient({ socket: { socketTimeout: 10_000, reconnectStrategy } });
await client.on('error', console.error).connect();
const locks = new Locks(client); // one for each Redis client in the application
await locks.lock('report', 10_000, { wait: 60_000 }).run(async (signal, held) => {
  console.log('working, token', held.token);
  for (let step = 0; step < 10 && !signal.aborted; step += 1) await new Promise((resolve) => setTimeout(resolve, 1000));
}); // rejects with LockLostError if the lock was lost in the meantime
client.destroy();
