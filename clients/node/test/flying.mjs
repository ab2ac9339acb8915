// What tests of single flight share: managers over a server in memory, and a computation that the test ends.

import assert from 'node:assert/strict';

const built = process.env.SERVERLOCK;
const { LockError } = await import(`file://${built}/dist/index.js`);
const { Server } = await import(`file://${built}/dist/testing.js`);

export const LEASE = 30_000;

/** The kind of the promise's error, or the error if it has none; undefined if there is no error. */
export const outcome = (promise) =>
  promise.then(
    () => undefined,
    (error) => (error instanceof LockError ? error.code : error),
  );

export const never = () => assert.fail('it computes');

/** Asks, and is computing once this resolves. `end` ends the computation with a value, or with an error. */
export async function computing(from, options = {}, key = 'page') {
  const made = {};
  const begun = new Promise((resolve) => {
    made.value = from.singleFlight(
      key,
      LEASE,
      (signal, held) => {
        Object.assign(made, { signal, held });
        resolve();
        return new Promise((resolve, reject) => {
          made.end = (value) => (value instanceof Error ? reject(value) : resolve(value));
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      },
      options,
    );
    made.value.catch(resolve);
  });
  await begun;
  return made;
}

/** Calls `act` before each command that a manager sends over the application's client. */
export function intercept(manager, act) {
  const { wire } = manager._engine;
  const { call } = wire;
  wire.call = async function (key, words, ...rest) {
    act(words);
    return call.call(this, key, words, ...rest);
  };
}

/** A server, and two managers like those of two processes. */
export function place() {
  const server = new Server();
  const [locks, other] = [server.locks(), server.locks()];
  const settle = () => server.clock.settle();
  const isFree = async (key = 'page') => {
    await settle();
    const reply = await locks._engine.wire.call(undefined, ['LOCK.INFO', key]);
    return reply[reply.indexOf('state') + 1] === 'free';
  };
  const nothingIsLeft = () => {
    for (const one of [locks, other])
      for (const [name, count] of Object.entries(one._engine.census())) assert.equal(count, 0, name);
  };
  return { server, locks, other, settle, isFree, nothingIsLeft };
}
