// An application recognizes errors by code, name and class, even across two copies of the package and through JSON.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';

const built = process.env.SERVERLOCK;
const load = (folder) => import(pathToFileURL(`${folder}/dist/index.js`).href);
const ours = await load(built);

/** Each class with its code and its superclasses. */
const CLASSES = {
  LockRefusedError: ['refused', 'LockError'],
  LockTimeoutError: ['timeout', 'LockRefusedError', 'LockError'],
  LockLostError: ['lost', 'LockError'],
  LockDeadlockError: ['deadlock', 'LockError'],
  LockUnavailableError: ['unavailable', 'LockError'],
  LockDeniedError: ['denied', 'LockError'],
  LockNoServerError: ['no_server', 'LockError'],
  LockBadArgumentError: ['argument', 'LockError'],
  LockMisuseError: ['misuse', 'LockError'],
};

let folder, theirs;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'serverlock-'));
  cpSync(join(built, 'dist'), join(folder, 'dist'), { recursive: true });
  cpSync(join(import.meta.dirname, '../package.json'), join(folder, 'package.json'));
  theirs = await load(folder);
});
after(() => rmSync(folder, { recursive: true, force: true }));

for (const [name, [code, ...above]] of Object.entries(CLASSES)) {
  test(`${name} is recognized by its code, its name and its class, whichever copy of the package created it`, () => {
    assert.notEqual(ours[name], theirs[name]);
    for (const copy of [ours, theirs]) {
      const error = new copy[name]("'report'", 'why', new Error('cause'));
      assert.deepEqual(
        [error.code, error.name, error.key, error.message],
        [code, name, "'report'", "the lock 'report': why"],
      );
      assert.equal(error.cause.message, 'cause');
      assert(error.stack.startsWith(`${name}: the lock 'report': why\n`), error.stack);
      assert(inspect(error).includes(`code: '${code}'`));
      for (const other of Object.keys(CLASSES)) {
        assert.equal(
          error instanceof ours[other],
          other === name || above.includes(other),
          `${name} instanceof ${other}`,
        );
      }
      assert(error instanceof ours.LockError && error instanceof Error);
      assert.deepEqual(JSON.parse(JSON.stringify(error)), { name, code, key: "'report'", message: error.message });
      assert(structuredClone(error).message.includes("'report'"));
    }
  });
}

test('each class also has its version 1.0 name, without Error', () => {
  for (const name of Object.keys(CLASSES)) assert.equal(ours[name.replace(/Error$/, '')], ours[name], name);
});

test('other values are not instances of the error classes', () => {
  for (const value of [new Error('x'), null, undefined, 'LockLostError', {}, { code: 'lost', name: 'LockLostError' }]) {
    assert(!(value instanceof ours.LockError) && !(value instanceof ours.LockLostError), String(value));
  }
});

test('a class derived by an application matches only its own instances', () => {
  class Mine extends ours.LockTimeoutError {}
  const mine = new Mine("'report'", 'why');
  assert(
    mine instanceof Mine &&
      mine instanceof ours.LockTimeoutError &&
      mine instanceof ours.LockRefusedError &&
      mine instanceof ours.LockError,
  );
  assert(!(new ours.LockTimeoutError("'report'", 'why') instanceof Mine));
  assert.equal(mine.code, 'timeout');
});
