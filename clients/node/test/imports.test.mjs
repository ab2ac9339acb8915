// The package's files depend on one another in one direction: each only on files above it in this list, even for types.
// A file that needs something from a file below it gets it from the file that builds both.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

const ts = createRequire(`${process.env.SERVERLOCK}/`)('typescript');
const src = join(import.meta.dirname, '../src');

const LAYERS = [
  ['errors', 'lease', 'owner', 'semaphore', 'shared', 'slot', 'ticks'],
  ['checks', 'clock', 'failures', 'thread-lease'],
  ['in-flight', 'terms', 'wire'],
  ['blocking', 'connections', 'ioredis', 'node-redis', 'server-clock', 'sessions', 'subscription'],
  ['memory-lock', 'memory-time', 'renewal-client', 'request'],
  ['memory-table'],
  ['memory-commands'],
  ['memory-wire'],
  ['callers', 'flights', 'form', 'replicas'],
  ['commands', 'hold', 'portable', 'results'],
  ['options', 'renewal', 'resources'],
  ['hooks', 'keeping', 'releasing', 'renewal-worker', 'waiting'],
  ['attempt', 'renewal-thread'],
  ['engine'],
  ['leader', 'once', 'single-flight'],
  ['locks'],
  ['index', 'nestjs', 'node-cron', 'opentelemetry', 'redlock', 'testing'],
];

/** The files that a file imports from or exports from. */
function importsOf(name) {
  const { importedFiles } = ts.preProcessFile(readFileSync(join(src, `${name}.ts`), 'utf8'), true, true);
  return importedFiles.flatMap(({ fileName }) => /^\.\/(.+)\.js$/.exec(fileName)?.[1] ?? []);
}

test('each source file has its layer', () => {
  const names = readdirSync(src).filter((name) => name.endsWith('.ts'));
  assert.deepEqual(names.map((name) => name.slice(0, -3)).sort(), LAYERS.flat().sort());
});

test('imports run one way', () => {
  const wrong = [];
  for (const [at, layer] of LAYERS.entries()) {
    const above = new Set(LAYERS.slice(0, at).flat());
    for (const name of layer)
      for (const used of importsOf(name)) if (!above.has(used)) wrong.push(`${name} -> ${used}`);
  }
  assert.deepEqual(wrong, []);
});
