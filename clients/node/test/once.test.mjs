// Ticks at the edges of their windows, the estimate of the server's clock, and what a run sends, to a server that is
// not there. `suspend` lets time pass: the wall clock moves on.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { until } from './servers.mjs';

const built = process.env.SERVERLOCK;
const load = (name) => import(`file://${built}/dist/${name}.js`);
const { Locks, LockBadArgumentError, LockLostError, LockMisuseError, LockUnavailableError, Once } = await load('index');
const { CLOCK, now } = await load('clock');
const { Engine } = await load('engine');
const { ConnectionLost, ReplyError } = await load('failures');
const { leaseEnds, scheduleOf } = await load('once');
const { estimateOf, marginOf, ServerClock } = await load('server-clock');
const { beginOf, defaultLease, endOf, isRecovery, SLACK, tickAt } = await load('ticks');

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const START = 1_799_971_200_000; // a tick of each of the periods below
const PERIODS = [10 * SECOND, MINUTE, HOUR, DAY, 12_500];

const wall = Date.now;
let shift = 0;
Date.now = () => Math.floor(wall() + shift);
const suspend = (ms) => {
  shift += ms;
};
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const nothing = () => undefined;

// Ticks

test('a time belongs to the nearest tick', () => {
  const shifts = { '-0.5': 0, '-0.499': 0, 0: 0, 0.4: 0, '-0.4': 0, 0.499: 0, 0.5: 1, '-0.501': -1 };
  for (const period of PERIODS) {
    const tick = START / period;
    assert(Number.isInteger(tick));
    for (const [by, meant] of Object.entries(shifts))
      assert.equal(tickAt(START + Number(by) * period, period), tick + meant, `${by} of ${period}`);
  }
});

test('half way belongs to the later tick, whether it is odd or even', () => {
  for (const tick of [180_000_000, 180_000_001]) {
    assert.equal(tickAt(endOf(tick, 10_000), 10_000), tick + 1);
    assert.equal(tickAt(beginOf(tick, 10_000), 10_000), tick);
    assert.equal(tickAt(endOf(tick, 10_000) - 0.01, 10_000), tick);
  }
});

test('windows follow each other', () => {
  for (const period of PERIODS) {
    for (const tick of [7, 8]) {
      assert.equal(endOf(tick, period), beginOf(tick + 1, period));
      assert.equal(endOf(tick, period) - beginOf(tick, period), period);
    }
  }
});

test('the ordinary end of the last tick is not a crash', () => {
  for (const period of PERIODS) {
    const [tick, begins] = [START / period, START - period / 2];
    const crashes = [begins - period, begins, begins + 600, begins + SLACK, begins + SLACK + 10, START].map((expired) =>
      isRecovery(expired, tick, period),
    );
    assert.deepEqual(crashes, [false, false, false, false, true, true]);
  }
});

test('the default lease leaves time to run the tick again', () => {
  assert.deepEqual([10_000, 40_000, HOUR].map(defaultLease), [2500, 10_000, 10_000]);
});

test('the lease ends a margin before half way on the local clock', () => {
  // never earlier, and by less than the slack
  for (const [doubt, later] of [
    [0, 0],
    [100, 100],
    [250, 250],
    [5000, 250],
  ]) {
    const clock = { offset: 1_799_999_000_000, doubt, asked: 0 };
    const run = { tick: 180_000_000, period: 10_000, clock, margin: 1500 };
    assert.equal(leaseEnds(run), 1_000_000 + 5000 - 1500 + later);
  }
});

// Arguments

test('bad periods, leases and options are refused', () => {
  const schedule = (period, options = {}) => scheduleOf(Buffer.from('job'), period, options, '');
  for (const [word, period, options] of [
    ['period', 9999],
    ['period', 0],
    ['period', '60'],
    ['period', undefined],
    ['period', Infinity],
    ['lease', 10_000, { lease: 5001 }],
    ['lease', MINUTE, { lease: 0 }],
    ['lease', MINUTE, { lease: null }],
    ['lease', MINUTE, { lease: 31_000 }],
    ['rerun', MINUTE, { rerun: 0 }],
    ['owner', MINUTE, { owner: '' }],
    ["no 'wait'", MINUTE, { wait: 5 }],
    ["no 'session'", MINUTE, { session: true }],
    ["no 'details'", MINUTE, { details: true }],
    ["no 'atLeast'", MINUTE, { atLeast: 5 }],
    ['options', MINUTE, null],
  ]) {
    const isMeant = (error) =>
      error instanceof LockBadArgumentError && error.message.includes(`'job'`) && error.message.includes(word);
    assert.throws(() => schedule(period, options), isMeant, `${word} ${period}`);
  }
  assert.equal(schedule(10_000).request.lease, 2500);
  assert.equal(schedule(10_000, { lease: 5000, maxHold: HOUR }).request.lease, 5000);
});

test('a body that is not a function is refused, and so is a closed manager', async () => {
  const { once, engine, sent } = opened();
  for (const call of [
    () => once().run(),
    () => once().run(nothing, { wiat: 5 }),
    () => once().run(nothing, { signal: 5 }),
  ])
    await assert.rejects(call, LockBadArgumentError);
  engine.close();
  await assert.rejects(once().run(nothing), LockMisuseError);
  assert.deepEqual(sent, []);
});

test('a manager describes it', () => {
  const locks = new Locks({ sendCommand: nothing, isReady: true });
  assert(locks.once('job', DAY, { rerun: false, onLost: nothing }) instanceof Once);
  assert.throws(() => locks.once('job', 5), LockBadArgumentError);
});

/**
 * A server that grants every lock. At first a daily tick has just begun there. `before[command]` is called once for
 * each such command before it runs; what it returns replaces the reply.
 */
class TickServer {
  clock = CLOCK;
  isCluster = false;
  hasOneConnection = true;
  prefix = '';
  ahead = START - now();
  margin = 1000;
  predecessor = [null, null, null];
  before = {};
  sent = [];
  leaseEnds = 0;

  epoch = () => 0;
  prefixed = (words) => words;
  refresh = async () => undefined;

  async call(_, words) {
    const [command] = words;
    this.sent.push(words);
    const instead = await this.before[command]?.(words);
    return instead === undefined ? this.#reply(command, words) : instead;
  }

  #reply(command, words) {
    const time = now() + this.ahead;
    const lease = Number(words[words.indexOf('PX') + 1]);
    if (command === 'TIME') return [String(Math.floor(time / 1000)), String(Math.floor((time % 1000) * 1000))];
    if (command === 'LOCK.INFO') return ['lease-ms', 5000, 'free-in-ms', 5001 + this.margin];
    this.leaseEnds = command === 'LOCK.ACQUIRE' || command === 'LOCK.EXTEND' ? time + lease + this.margin : 0;
    return command === 'LOCK.ACQUIRE' ? [7, ...this.predecessor] : 1;
  }

  count(command) {
    return this.sent.filter(([one]) => one === command).length;
  }

  /** Whether the lease ends with the window of the first tick. */
  get isKept() {
    const late = this.leaseEnds - (START + DAY / 2);
    return late >= -2 && late <= 700;
  }
}

// A manager's timers do not keep the process alive, and there are no connections.
let alive;
before(() => {
  alive = setInterval(nothing, SECOND);
});
after(() => clearInterval(alive));

const engines = [];
afterEach(() => {
  for (const engine of engines.splice(0)) engine.close();
});

function opened({ timeout = 5000, hooks = {} } = {}) {
  const server = new TickServer();
  const warnings = [];
  const warn = (text) => warnings.push(text);
  const engine = new Engine(server, { timeout, portable: false, warnWithoutModule: false, hooks, warn });
  engines.push(engine);
  const once = (options = {}) => Once._of(engine, scheduleOf(Buffer.from('job'), DAY, options, ''));
  return { server, engine, once, warnings, sent: server.sent };
}

/** Fails the first commands of that name. */
const fails = (count, failure) => () => {
  if (count-- > 0) throw failure();
};
const lost = () => new ConnectionLost(new Error('the connection has ended'));
const busy = () => new ReplyError('BUSY running a script');

/** A promise with its `resolve` and `reject`. */
function latch() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

// The server's clock

test('the offset is that of the middle of the call', () => {
  for (const reply of [
    ['1800000000', '250000'],
    [1800000000, 250000],
    [Buffer.from('1800000000'), Buffer.from('250000')],
  ])
    assert.deepEqual(estimateOf(reply, 10_000, 10_400), { offset: 1_799_999_990_050, doubt: 200, asked: 10_400 });
  for (const reply of [null, 'OK', ['1'], ['x', 'y'], {}]) assert.throws(() => estimateOf(reply, 0, 0), /TIME/);
});

test('the margin is what free-in-ms exceeds the lease by', () => {
  const fields = { 'lease-ms': 5000, 'free-in-ms': 12_001 };
  for (const reply of [Object.entries(fields).flat(), new Map(Object.entries(fields)), fields])
    assert.equal(marginOf(reply), 7000);
  assert.equal(marginOf(['lease-ms', 5000, 'free-in-ms', 5000]), 0);
  for (const reply of [null, [], ['lease-ms', 0, 'free-in-ms', 5], ['lease-ms', 5000, 'free-in-ms', null]])
    assert.equal(marginOf(reply), 1000);
});

const clockOf = (server) => new ServerClock({ clock: CLOCK, wire: server, timeout: 5000 });
const KEY = Buffer.from('job');

test('the time is requested at most once a minute, and by one caller at a time', async () => {
  const server = new TickServer();
  const clock = clockOf(server);
  await Promise.all(Array.from({ length: 20 }, () => clock.read(KEY)));
  suspend(MINUTE - 1000);
  await clock.read(Buffer.from('another'));
  assert.equal(server.count('TIME'), 1);
  suspend(1500);
  server.ahead += 3000; // somebody has set its clock
  const { offset } = await clock.read(KEY);
  assert(Math.abs(offset - server.ahead) < 50, String(offset - server.ahead));
  assert.equal(server.count('TIME'), 2);
});

test('each key of a cluster has the clock of its server', async () => {
  const server = new TickServer();
  server.isCluster = true;
  const clock = clockOf(server);
  for (const key of ['a', 'b', 'a']) await clock.read(Buffer.from(key));
  assert.equal(server.count('TIME'), 2);
});

test('the time is requested again after a slow reply, and the better one is used', async () => {
  for (const [slow, doubt, asked] of [
    [[300], 150, 1],
    [[600], 0, 2],
    [[900, 700], 350, 4], // used, but not kept
    [[700, 900], 350, 4],
  ]) {
    const server = new TickServer();
    const left = [...slow];
    server.before.TIME = () => suspend(left.shift() ?? 0);
    const clock = clockOf(server);
    const found = await clock.read(KEY);
    assert(Math.abs(found.doubt - doubt) < 90, `${found.doubt} after ${slow}`);
    left.push(...(asked === 4 ? slow : []));
    await clock.read(KEY);
    assert.equal(server.count('TIME'), asked, String(slow));
  }
});

test('the time is requested once more after a lost reply', async () => {
  const server = new TickServer();
  const clock = clockOf(server);
  server.before.TIME = fails(1, lost);
  await clock.read(KEY);
  suspend(MINUTE + SECOND);
  server.before.TIME = fails(2, lost);
  await assert.rejects(clock.read(KEY), ConnectionLost);
  server.before.TIME = fails(1, () => new ReplyError('NOPERM no'));
  await assert.rejects(clock.read(KEY), ReplyError);
  await clock.read(KEY);
  assert.equal(server.count('TIME'), 6);
});

test('the margin is requested at most once a minute', async () => {
  const server = new TickServer();
  const clock = clockOf(server);
  server.margin = 7000;
  assert.deepEqual(await Promise.all([clock.readMargin(KEY), clock.readMargin(KEY)]), [7000, 7000]);
  suspend(MINUTE + SECOND);
  server.before['LOCK.INFO'] = fails(1, () => new ReplyError('NOPERM no'));
  assert.equal(await clock.readMargin(KEY), 7000);
  assert.equal(await clock.readMargin(KEY), 7000);
  assert.equal(server.count('LOCK.INFO'), 2);
  suspend(MINUTE + SECOND);
  server.before['LOCK.INFO'] = fails(1, lost);
  await clock.readMargin(KEY);
  await clock.readMargin(KEY);
  assert.equal(server.count('LOCK.INFO'), 4);
});

// Runs

test('a tick that has run is kept until its window ends, whatever the margin', async () => {
  for (const margin of [0, 1000, 7000]) {
    const released = [];
    const { server, once } = opened({ hooks: { released: (...args) => released.push(args) } });
    server.margin = margin;
    const { outcome, value } = await once().run((signal, held) => {
      assert.deepEqual([held.tick, held.recovered, signal.aborted, server.isKept], [START / DAY, false, false, false]);
      held.check();
      return held;
    });
    assert.equal(outcome, 'ran');
    assert(server.isKept, `${server.leaseEnds} with a margin of ${margin}`);
    assert.equal(server.count('LOCK.RELEASE'), 0);
    assert.throws(() => value.check(), /it was released/);
    assert.equal(value.lost, undefined);
    const words = server.sent.find(([command]) => command === 'LOCK.ACQUIRE');
    assert.deepEqual([words[words.indexOf('PX') + 1], words.at(-1)], [10_000, 'DETAILS']);
    assert.deepEqual([released.length, released[0][2]], [1, true]);
  }
});

test('a tick that somebody else runs has no body', async () => {
  const { server, once } = opened();
  server.before['LOCK.ACQUIRE'] = () => null;
  assert.deepEqual(await once().run(() => assert.fail('the body runs')), { outcome: 'elsewhere' });
  assert.equal(server.count('LOCK.EXTEND'), 0);
});

test('other failures of the attempt are errors', async () => {
  const { server, once } = opened();
  server.before['LOCK.ACQUIRE'] = fails(9, () => new ReplyError('CLOCK went backwards'));
  await assert.rejects(once().run(nothing), LockUnavailableError);
  server.before.TIME = fails(9, lost);
  suspend(MINUTE + SECOND);
  await assert.rejects(once().run(nothing), { code: 'no_server' });
});

test('a predecessor that died in this window is reported', async () => {
  for (const [overdue, outcome] of [
    [500, 'recovered'],
    [DAY / 2 - 2000, 'recovered'],
    [DAY / 2, 'ran'],
  ]) {
    const { server, once } = opened();
    server.predecessor = [overdue, 3, 'bob'];
    assert.deepEqual(await once().run((_, held) => held.recovered), { outcome, value: outcome === 'recovered' });
  }
});

test('a body that fails lets others run the tick', async () => {
  for (const rerun of [true, false]) {
    const { server, once } = opened();
    const error = new Error('work');
    await assert.rejects(
      once({ rerun }).run(() => {
        throw error;
      }),
      error,
    );
    assert.deepEqual([server.count('LOCK.RELEASE'), server.count('LOCK.EXTEND')], [1, 0]);
  }
});

test('the scope of a body refuses the same lock, before anything is sent', async () => {
  const { server, once } = opened();
  await once().run(async () => {
    const before = server.sent.length;
    await assert.rejects(once().run(nothing), LockMisuseError);
    assert.equal(server.sent.length, before);
  });
});

test('a body may release its lock', async () => {
  const { server, once } = opened();
  assert.equal((await once().run((_, held) => held.release())).value, true);
  assert.deepEqual([server.count('LOCK.RELEASE'), server.count('LOCK.EXTEND')], [1, 0]);
});

test('a loss during the body is like that of any lock', async () => {
  const reported = [];
  const { server, once } = opened();
  for (const stops of [true, false]) {
    const run = once({ onLost: (held) => reported.push(held.tick) }).run((signal, held) => {
      held._lose('taken away', true);
      if (stops) signal.throwIfAborted();
    });
    await assert.rejects(run, LockLostError);
  }
  assert.deepEqual(reported, [START / DAY, START / DAY]);
  assert.deepEqual([server.count('LOCK.RELEASE'), server.count('LOCK.EXTEND')], [0, 0]);
});

test('without rerun the lease is long from the start, and not renewed', async () => {
  for (const margin of [1000, 9000]) {
    const { server, once } = opened();
    server.margin = margin;
    await once({ rerun: false }).run(async (_, held) => {
      assert(server.isKept, `${server.leaseEnds} with a margin of ${margin}`);
      suspend(DAY / 4); // a renewal would be due
      await sleep(1200);
      held.check();
    });
    // The margin is unknown until the first grant.
    assert.equal(server.count('LOCK.EXTEND'), margin === 1000 ? 0 : 1);
    assert(server.isKept);
    assert.equal(server.count('LOCK.RELEASE'), 0);
  }
});

test('a long lease from a slow request is corrected', async () => {
  const { server, once } = opened();
  const slow = [3000];
  server.before['LOCK.ACQUIRE'] = () => suspend(3000);
  server.before['LOCK.EXTEND'] = () => suspend(slow.pop() ?? 0);
  await once({ rerun: false }).run(() => assert(server.isKept));
  assert.equal(server.count('LOCK.EXTEND'), 2);
});

test('a long lease of a grant in the next window lasts until the end of that window', async () => {
  // The lease that is corrected is the shortest one, 1 s, of which the request takes half: a busy machine may be too
  // slow to correct it.
  for (let tries = 1; ; tries++) {
    const { server, once } = opened();
    server.ahead = START + DAY / 2 - 200 - now();
    server.before['LOCK.ACQUIRE'] = () => suspend(500);
    const run = once({ rerun: false }).run((_, held) => {
      held.check();
      const late = server.leaseEnds - (START + (3 * DAY) / 2);
      assert(late >= -2 && late <= 700, String(late));
    });
    try {
      return await run;
    } catch (error) {
      if (!(error instanceof LockLostError) || tries === 20) throw error;
    }
  }
});

test('a caller that gives up before its body holds nothing', async () => {
  for (const command of ['TIME', 'LOCK.ACQUIRE', 'LOCK.INFO']) {
    const { server, engine, once } = opened();
    const caller = new AbortController();
    const mayReply = latch();
    server.before[command] = async () => {
      caller.abort(new Error('of the caller'));
      if (command !== 'LOCK.ACQUIRE') await mayReply.promise;
    };
    await assert.rejects(
      once().run(() => assert.fail('the body runs'), { signal: caller.signal }),
      /of the caller/,
    );
    const ended = () => server.count('LOCK.RELEASE') + server.count('LOCK.CANCEL');
    if (command !== 'TIME') await until('nothing is held', () => ended() === 1);
    mayReply.resolve();
    await sleep(20);
    assert.equal(ended(), command === 'TIME' ? 0 : 1);
    assert.equal(server.count('LOCK.ACQUIRE'), command === 'TIME' ? 0 : 1);
    const { attempts, owed } = engine.census();
    assert.deepEqual([attempts, owed], [0, 0]);
  }
});

test('a signal that was aborted beforehand sends nothing', async () => {
  const { server, once } = opened();
  await assert.rejects(once().run(nothing, { signal: AbortSignal.abort(new Error('early')) }), /early/);
  assert.deepEqual(server.sent, []);
});

test('a caller that gives up leaves others their answer', async () => {
  const { server, once } = opened();
  const caller = new AbortController();
  const mayReply = latch();
  server.before.TIME = () => mayReply.promise;
  const first = once().run(nothing, { signal: caller.signal });
  const second = once().run(nothing);
  caller.abort(new Error('of the caller'));
  await assert.rejects(first, /of the caller/);
  mayReply.resolve();
  assert.equal((await second).outcome, 'ran');
  assert.equal(server.count('TIME'), 1);
});

test('a signal that is aborted during or after the body does not cost the tick', async () => {
  const { server, once } = opened();
  const caller = new AbortController();
  server.before['LOCK.EXTEND'] = () => caller.abort();
  assert.equal((await once().run(nothing, { signal: caller.signal })).outcome, 'ran');
  assert(server.isKept);
});

test('a manager that is closed before the body holds nothing', async () => {
  const { server, engine, once } = opened();
  server.before['LOCK.INFO'] = () => {
    engine.close();
    return latch().promise;
  };
  await assert.rejects(
    once().run(() => assert.fail('the body runs')),
    LockMisuseError,
  );
  assert.equal(server.count('LOCK.RELEASE'), 1);
});

test('a manager that is closed during the body keeps the tick', async () => {
  const { server, engine, once } = opened();
  await once().run(() => engine.close());
  assert(server.isKept);
  assert.equal(server.count('LOCK.RELEASE'), 0);
});

test('the time is requested again after a long body', async () => {
  for (const [takes, isAllowed, isKept] of [
    [9 * MINUTE, true, false],
    [11 * MINUTE, true, true],
    [11 * MINUTE, false, false],
  ]) {
    const { server, once } = opened();
    await once({ lease: HOUR }).run(() => {
      suspend(takes);
      server.ahead += 20_000; // its clock has drifted, or was set
      if (!isAllowed) server.before.TIME = fails(9, () => new ReplyError('ERR no'));
    });
    assert.equal(server.isKept, isKept, String(takes));
    assert.equal(server.count('LOCK.EXTEND'), 1);
  }
});

test('a renewal in flight cannot shorten the lease', async () => {
  const { server, once } = opened();
  const [isSent, mayArrive] = [latch(), latch()];
  server.before['LOCK.EXTEND'] = () => {
    isSent.resolve();
    return mayArrive.promise;
  };
  const run = once({ lease: HOUR }).run(() => {
    suspend(20 * MINUTE + 1000);
    return isSent.promise;
  });
  await isSent.promise;
  await sleep(100);
  assert.equal(server.count('LOCK.EXTEND'), 1);
  mayArrive.resolve();
  await run;
  assert(server.isKept);
  assert.equal(server.count('LOCK.EXTEND'), 2);
});

test('a renewal that may arrive late is followed by a last copy', async () => {
  for (const answers of [true, false]) {
    const { server, engine, once } = opened({ timeout: 100 });
    const late = latch();
    let first = true;
    server.hasOneConnection = false;
    server.before['LOCK.EXTEND'] = () => {
      if (!first) return;
      first = false;
      throw new ConnectionLost(new Error('no reply'), late.promise);
    };
    await once({ lease: HOUR }).run(async () => {
      suspend(20 * MINUTE + 1000);
      await until('it is renewed', () => server.count('LOCK.EXTEND') === 1);
      await sleep(20);
    });
    assert.equal(server.count('LOCK.EXTEND'), 2);
    suspend(2100);
    await until('the last copy is sent', () => server.count('LOCK.EXTEND') === 3);
    server.leaseEnds = now() + server.ahead + HOUR; // it arrives
    if (answers) late.resolve(1);
    else late.reject(new Error('closed'));
    await until('it is noticed', () => engine.census().owed === 1);
    suspend(2100);
    await until('it is kept again', () => server.isKept);
    assert.equal(server.count('LOCK.RELEASE'), 0);
    assert.equal(engine.census().owed, 0);
  }
});

test('a renewal whose connection has just ended is followed by a last copy', async () => {
  const { server, engine, once } = opened();
  server.before['LOCK.EXTEND'] = fails(1, lost);
  await once({ lease: HOUR }).run(async () => {
    suspend(20 * MINUTE + 1000);
    await until('it is renewed', () => server.count('LOCK.EXTEND') === 1);
    await sleep(20);
  });
  assert.equal(server.count('LOCK.EXTEND'), 2);
  suspend(2100);
  await until('the last copy is sent', () => server.count('LOCK.EXTEND') === 3);
  assert.equal(engine.census().owed, 0);
});

test('a slow EXTEND is sent again, at most twice', async () => {
  for (const [slow, sent] of [
    [1, 2],
    [2, 3],
    [9, 3],
  ]) {
    const { server, once } = opened();
    let left = slow;
    server.before['LOCK.EXTEND'] = () => suspend(left-- > 0 ? 1000 : 0);
    await once({ lease: HOUR }).run(nothing);
    assert.equal(server.count('LOCK.EXTEND'), sent);
    assert.equal(server.isKept, slow < 3);
  }
});

test('a lost reply to the last EXTEND is followed by a late copy', async () => {
  const { server, engine, once } = opened();
  server.before['LOCK.EXTEND'] = fails(1, lost);
  assert.equal((await once({ lease: HOUR }).run(nothing)).outcome, 'ran');
  assert(server.isKept);
  assert.equal(server.count('LOCK.EXTEND'), 2);
  suspend(2100);
  await until('it is sent', () => server.count('LOCK.EXTEND') === 3);
  await sleep(20);
  assert.equal(engine.census().owed, 0);
  assert(server.isKept);
  assert.equal(server.count('LOCK.RELEASE'), 0);
});

test('a tick is kept in the background if the server is busy, and late copies follow lost ones', async () => {
  for (const [failure, copies] of [
    [busy, 5],
    [lost, 6],
    [(isOwed) => (isOwed ? lost() : busy()), 6],
  ]) {
    const { server, engine, once, warnings } = opened({ timeout: 1 });
    server.before['LOCK.EXTEND'] = fails(4, () => failure(warnings.length > 0));
    assert.equal((await once({ lease: HOUR }).run(nothing)).outcome, 'ran');
    assert(!server.isKept);
    assert.match(warnings.join(), /kept for its period in the background/);
    await until('it is kept', () => server.isKept);
    suspend(2100);
    await until('nothing is owed', () => engine.census().owed === 0);
    await sleep(20);
    assert.equal(server.count('LOCK.EXTEND'), copies);
    assert.equal(server.count('LOCK.RELEASE'), 0);
  }
});

test('an error that is not retried ends the keep', async () => {
  const { server, engine, once, warnings } = opened({ timeout: 1 });
  server.before['LOCK.EXTEND'] = fails(9, () => new ReplyError('GRACE lease is longer than the grace'));
  await assert.rejects(once({ lease: HOUR }).run(nothing), LockUnavailableError);
  const [passing, lasting] = [fails(3, busy), () => new ReplyError('GRACE lease is longer than the grace')];
  server.before['LOCK.EXTEND'] = () => {
    passing();
    throw lasting();
  };
  assert.equal((await once({ lease: HOUR }).run(nothing)).outcome, 'ran');
  await until('it is given up', () => warnings.some((text) => text.includes('could not be kept for its period')));
  assert.equal(engine.census().owed, 0);
  assert.equal(server.count('LOCK.RELEASE'), 0);
});

test('an EXTEND that finds the lock gone is a loss', async () => {
  const { server, once } = opened();
  server.before['LOCK.EXTEND'] = () => 0;
  await assert.rejects(once().run(nothing), LockLostError);
});

test('a lock whose window has ended is released', async () => {
  const { server, once } = opened();
  await once({ lease: DAY / 2 }).run(() => {
    server.ahead += DAY / 2;
    suspend(11 * MINUTE);
  });
  assert.deepEqual([server.count('LOCK.RELEASE'), server.count('LOCK.EXTEND')], [1, 0]);
});
