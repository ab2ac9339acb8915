// Plays what tests/integration/languages asks for, with the lock of examples/node.
//
// A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs. Under RESP2 the lock is held by a
// callback, under RESP3 by what `await using` calls, which not every runtime that has the library can read.
import { EventEmitter, once } from 'node:events';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Lock, LockError, withLock } from '../../examples/node/redis_lock/index.mjs';

const { createClient } = createRequire(import.meta.url)('redis'); // an import would not look into NODE_PATH
const KINDS = { LockRefused: 'refused', LockLost: 'lost', LockUnsupported: 'unsupported', LockReply: 'reply' };
const OTHERS = { AbortError: 'refused', RangeError: 'work' };

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const orders = new EventEmitter();
let waiting = new AbortController();
let warned = '';
process.on('warning', (warning) => (warned += warning.message));

function optionsOf(command) {
  const { lease_ms: leaseMs, wait_ms: waitMs, timeout_ms: timeoutMs, owner, session, fallback, prefix } = command;
  return { leaseMs, waitMs, timeoutMs, owner, session, fallback, prefix, signal: waiting.signal };
}

async function work(signal, lock) {
  await new Promise(setImmediate); // warnings are told in a later turn
  say({ event: 'held', token: lock.token, warned });
  try {
    const [order] = await once(orders, 'order', { signal });
    if (order === 'fail') throw new RangeError('the work failed');
  } catch (error) {
    if (signal.aborted) say({ event: 'stopped', left_ms: lock.leftMs() });
    throw error;
  }
}

/** What `await using lock = ...; await work(lock.signal, lock);` does. */
async function using(client, command) {
  const lock = await Lock.acquire(client, command.key, optionsOf(command));
  let failure;
  try {
    await work(lock.signal, lock);
  } catch (error) {
    failure = error;
  }
  await lock[Symbol.asyncDispose]();
  if (failure) throw failure;
}

async function hold(client, command) {
  waiting = new AbortController();
  warned = '';
  if (command.protocol === 3) await using(client, command);
  else await withLock(client, command.key, optionsOf(command), work);
  say({ event: 'left' });
}

const clients = new Map();

/** The client that the application has besides. */
function clientOf({ port, protocol }) {
  const where = `${port} ${protocol}`;
  if (!clients.has(where)) {
    clients.set(where, createClient({ socket: { host: '127.0.0.1', port }, RESP: protocol }).on('error', () => {}));
  }
  return clients.get(where);
}

async function obey(command) {
  const client = clientOf(command);
  try {
    if (command.do === 'hold') return await hold(client, command);
    if (!client.isOpen) await client.connect();
    say({ event: 'pong', reply: await client.echo('hello') });
  } catch (error) {
    const kind = error instanceof LockError ? KINDS[error.name] : (OTHERS[error.name] ?? 'connection');
    say({ event: 'error', kind, name: error.name, text: error.message });
  }
}

let isBusy = false;
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === 'cancel') waiting.abort();
  else if (isBusy) orders.emit('order', command.do);
  else {
    isBusy = true;
    obey(command).then(() => (isBusy = false));
  }
}
process.exit();
