// The owner that a lock names by default. No server is needed.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { hostname } from 'node:os';
import { test } from 'node:test';

const built = process.env.SERVERLOCK;
const load = (name) => import(`file://${built}/dist/${name}.js`);
const { LockBadArgumentError } = await load('index');
const { labelOf } = await load('owner');
const { Request } = await load('request');

const OWN = `${hostname()}:${process.pid}`;

/** The owner that is sent; undefined if none is. */
function ownerOf(options, kind = []) {
  const words = new Request([Buffer.from('report')], 2000, options, kind).acquire('7', 500, 'channel');
  const at = words.indexOf('OWNER');
  return at < 0 ? undefined : words[at + 1];
}

test('the owner is this host and process', () => {
  assert.equal(ownerOf({}), OWN);
  assert.equal(ownerOf({ owner: undefined }), OWN);
  assert.equal(ownerOf({}, ['LIMIT', 3]), OWN);
});

test('a child process names itself', () => {
  const program = `
    const { Request } = await import('file://${built}/dist/request.js');
    const words = new Request([Buffer.from('report')], 2000, {}).acquire('7');
    console.log(words.includes(\`\${(await import('node:os')).hostname()}:\${process.pid}\`));`;
  assert.equal(execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' }), 'true\n');
});

test('a given owner is sent, and none for null', () => {
  assert.equal(ownerOf({ owner: 'report-job' }), 'report-job');
  assert.equal(ownerOf({ owner: null }), undefined);
  for (const owner of ['', 'two words', 'x'.repeat(129), 7, false])
    assert.throws(() => ownerOf({ owner }), LockBadArgumentError, String(owner));
});

test('a host name becomes a valid owner', () => {
  assert.equal(labelOf('web 1.ex\u00e4mple\u{1f512}', 12), 'web?1.ex?mple?:12');
  assert.equal(labelOf('h'.repeat(300), 12), `${'h'.repeat(125)}:12`);
});
