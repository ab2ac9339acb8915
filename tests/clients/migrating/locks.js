// Drives the locks of Node libraries, as locks.py drives those of Python: the same steps, the same answers.
//
// locks.js LIBRARY PORT
'use strict';

const readline = require('readline');
const { Redis } = require('ioredis');

const PATIENCE_MS = 20000;
// How long to try with a library that cannot try just once.
const TRY_MS = 400;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A lock from npm redis-lock: `begin` tries until it has the lock, and `release` gets what `begin` returned. */
function tried(begin, release) {
  const attempt = { pending: true };
  let done;
  const held = begin().then((given) => {
    done = given;
    attempt.pending = false;
    return 'held';
  });
  return Object.assign(attempt, {
    take: (wait) => Promise.race([held, pause(wait ? PATIENCE_MS : TRY_MS).then(() => 'refused')]),
    release: () => release(done).then(() => 'done'),
  });
}

/** npm redis-lock: calls back when it has the lock. */
function redisLock(version) {
  return async (port) => {
    const lock = require(`redis-lock-${version}`)(new Redis(port));
    // Version 0.0.2 does not call back when its time has passed.
    const release = (done) => Promise.race([new Promise((resolve) => done(resolve)), pause(TRY_MS)]);
    return (key, seconds) => tried(() => new Promise((resolve) => lock(key, seconds * 1000, resolve)), release);
  };
}

/** npm redis-lock 1: the same with promises, for node-redis 4. */
async function redisLock1(port) {
  const client = require('redis').createClient({ socket: { host: '127.0.0.1', port } });
  await client.connect();
  const lock = require('redis-lock-1.0.0')(client);
  return (key, seconds) => tried(() => lock(key, seconds * 1000), (done) => done());
}

/** npm redlock, with one server. */
function redlock(version) {
  return async (port) => {
    const Redlock = version === 4 ? require('redlock-4') : require('redlock-5').default;
    const [once, patient] = [0, PATIENCE_MS / 200].map((retryCount) => new Redlock([new Redis(port)], { retryCount }));
    for (const each of [once, patient]) each.on(version === 4 ? 'clientError' : 'error', () => {});
    return (key, seconds) => {
      let held;
      return {
        take: async (wait) => {
          const name = version === 4 ? key : [key];
          try {
            held = await (wait ? patient : once).acquire(name, seconds * 1000);
            return 'held';
          } catch (error) {
            if (error.name === 'LockError' || error.name === 'ExecutionError') return 'refused';
            throw error;
          }
        },
        release: () => (version === 4 ? held.unlock() : held.release()).then(() => 'done'),
        extend: () => held.extend(seconds * 1000).then(() => 'done'),
      };
    };
  };
}

const libraries = {
  'redis-lock-0.0.2': redisLock('0.0.2'),
  'redis-lock-0.0.9': redisLock('0.0.9'),
  'redis-lock-0.1.4': redisLock('0.1.4'),
  'redis-lock-1.0.0': redisLock1,
  'redlock-4': redlock(4),
  'redlock-5': redlock(5),
};

async function main() {
  const make = await libraries[process.argv[2]](Number(process.argv[3]));
  const locks = {};
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, key, seconds] = line.split(' ');
    let answer;
    try {
      if (verb === 'try' || verb === 'take') {
        // A redis-lock attempt cannot be ended: it goes on, and the next step uses the same attempt.
        if (!locks[key]?.pending) locks[key] = make(key, Number(seconds));
        answer = await locks[key].take(verb === 'take');
      } else {
        answer = locks[key][verb] ? await locks[key][verb]() : 'none';
      }
    } catch (error) {
      answer = `fails ${error.name}`;
    }
    console.log(answer);
  }
  process.exit();
}

main();
