// serverlock/nestjs in Nest's own container, with locks in memory. tests/frameworks/node runs it with @nestjs/schedule.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { beforeEach, test } from 'node:test';

const built = process.env.SERVERLOCK;
const packages = createRequire(`${built}/`);
const load = (name) => import(`file://${packages.resolve(name)}`);
const { Injectable, Module } = await load('@nestjs/common');
const { NestFactory } = await load('@nestjs/core');
const { LockBadArgumentError, LockMisuseError, Locks } = await import(`file://${built}/dist/index.js`);
const { LocksModule, OncePerTick } = await import(`file://${built}/dist/nestjs.js`);
const { Server } = await import(`file://${built}/dist/testing.js`);

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let server;
beforeEach(async () => {
  server = new Server();
  await server.clock.advance(HOUR - (server.clock.now() % HOUR)); // a tick begins
});

/** Applies decorators in the order in which they stand above a method. */
function decorate(type, name, ...decorators) {
  const found = decorators.reduceRight(
    (descriptor, decorator) => decorator(type.prototype, name, descriptor) ?? descriptor,
    Object.getOwnPropertyDescriptor(type.prototype, name),
  );
  Object.defineProperty(type.prototype, name, found);
}

/** A provider whose method `hourly` returns its token. */
function reports(period = HOUR, options = {}, ...others) {
  class Reports {
    ran = [];
    name = 'a property of the provider';
    async hourly(held) {
      this.ran.push(held.tick);
      await held.verify();
      return this.name;
    }
  }
  decorate(Reports, 'hourly', ...others, OncePerTick(period, options));
  Injectable()(Reports);
  return Reports;
}

/** An application in a process of its own. */
async function application(t, provider, imported = LocksModule.forRoot(server.locks())) {
  class Application {}
  Module({ imports: [imported], providers: [provider] })(Application);
  const app = await NestFactory.createApplicationContext(Application, { logger: false, abortOnError: false });
  t.after(() => app.close());
  return app;
}

test('one of two applications runs the method of a tick, with its own provider', async (t) => {
  const Reports = reports();
  const [one, two] = [await application(t, Reports), await application(t, Reports)].map((app) => app.get(Reports));
  const outcomes = await Promise.all([one.hourly(), two.hourly()]);
  assert.deepEqual(outcomes.map(({ outcome }) => outcome).sort(), ['elsewhere', 'ran']);
  assert.equal(outcomes.find(({ outcome }) => outcome === 'ran').value, 'a property of the provider');
  assert.equal((await one.hourly()).outcome, 'elsewhere');
  await server.clock.advance(HOUR);
  assert.equal((await two.hourly()).outcome, 'ran');
  assert.equal(one.ran.length + two.ran.length, 2);
});

test('the key is the name of the class and the method, or the given one', async (t) => {
  for (const [options, key] of [
    [{}, 'Reports.hourly'],
    [{ key: 'hourly report' }, 'hourly report'],
  ]) {
    const Reports = reports(HOUR, options);
    const app = await application(t, Reports);
    const held = await app.get(Locks).lock(key, MINUTE).acquire();
    assert.equal((await app.get(Reports).hourly()).outcome, 'elsewhere');
    await held.release();
    assert.equal((await app.get(Reports).hourly()).outcome, 'ran');
  }
});

test('calls halfway between two multiples of the period need an offset', async (t) => {
  await server.clock.advance(HOUR / 2 - 1000);
  for (const [offset, expected] of [
    [0, ['ran', 'ran', 'elsewhere']],
    [HOUR / 2, ['ran', 'elsewhere', 'ran']],
  ]) {
    const Reports = reports(HOUR, { offset, key: `key ${offset}` });
    const provider = (await application(t, Reports)).get(Reports);
    const outcomes = [(await provider.hourly()).outcome];
    await server.clock.advance(2000); // a process whose clock is late
    outcomes.push((await provider.hourly()).outcome);
    await server.clock.advance(HOUR - 2000);
    outcomes.push((await provider.hourly()).outcome);
    assert.deepEqual(outcomes, expected);
  }
});

test('the tick of a process that died runs again after the lease', async (t) => {
  const Reports = reports();
  const [one, two] = [await application(t, Reports), await application(t, Reports)];
  Object.defineProperty(one.get(Reports), 'name', { get: () => new Promise(() => undefined) });
  void one
    .get(Reports)
    .hourly()
    .catch(() => undefined);
  await server.clock.settle();
  assert.equal((await two.get(Reports).hourly()).outcome, 'elsewhere');
  server.expire('Reports.hourly'); // as if that process were gone
  assert.equal((await two.get(Reports).hourly()).outcome, 'recovered');
});

test('it keeps the metadata of other decorators, whether they come before or after it', () => {
  const tag = (_type, _name, descriptor) => Reflect.defineMetadata('tag', 'value', descriptor.value);
  const above = reports(HOUR, {}, tag);
  assert.equal(Reflect.getMetadata('tag', above.prototype.hourly), 'value');
  class Below {
    hourly() {}
  }
  decorate(Below, 'hourly', OncePerTick(HOUR), tag);
  assert.equal(Reflect.getMetadata('tag', Below.prototype.hourly), 'value');
});

test('the Locks may be built from other providers, and end with the application', async (t) => {
  class Client {}
  class ClientModule {}
  Module({ providers: [Client], exports: [Client] })(ClientModule);
  const imported = LocksModule.forRootAsync({
    imports: [ClientModule],
    inject: [Client],
    useFactory: async (client) => {
      assert(client instanceof Client);
      return server.locks();
    },
  });
  const Reports = reports();
  const app = await application(t, Reports, imported);
  const [locks, provider] = [app.get(Locks), app.get(Reports)];
  assert.equal((await provider.hourly()).outcome, 'ran');
  await app.close();
  await assert.rejects(locks.lock('a', MINUTE).acquire(), LockMisuseError);
});

test('an application without Locks does not start, and neither does a class without Nest', async (t) => {
  const Reports = reports();
  await assert.rejects(application(t, Reports, { module: class Empty {} }), /Locks/);
  await assert.rejects(
    new Reports().hourly(),
    (error) => error instanceof LockMisuseError && /LocksModule/.test(error),
  );
});

test('arguments are checked where the class is defined', () => {
  for (const [period, options, name] of [
    [1000, {}, 'period'],
    [null, {}, 'period'],
    [HOUR, { wait: 5 }, 'wait'],
    [HOUR, null, 'options'],
    [HOUR, { lease: HOUR }, 'lease'],
    [HOUR, { offset: -1 }, 'offset'],
    [HOUR, { offset: HOUR + 1 }, 'offset'],
    [HOUR, { key: 5 }, 'key'],
  ])
    assert.throws(
      () => reports(period, options),
      (error) => error instanceof LockBadArgumentError && error.message.includes(name),
      name,
    );
});
