// The drop-ins have the types that the frameworks publish.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';

const OPTIONS = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--skipLibCheck'];
const DECORATORS = ['--experimentalDecorators', '--emitDecoratorMetadata'];
const compile = (file) => {
  try {
    execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', ...OPTIONS, ...DECORATORS, file]);
  } catch (error) {
    return String(error.stdout);
  }
  return '';
};

for (const file of ['node-cron.types.ts']) test(`${file} compiles`, () => assert.equal(compile(file), ''));

test('the compiler finds a coordinator that is none', () => {
  const text = readFileSync('node-cron.types.ts', 'utf8').replace('= new LockCoordinator(locks)', '= locks');
  writeFileSync('wrong.types.ts', text);
  assert.match(compile('wrong.types.ts'), /RunCoordinator/);
});

/** Where the sections about Node are. */
const PAGES = ['docs/FRAMEWORKS.md', 'docs/frameworks-node.md'].map((name) => `${process.env.REPOSITORY}/${name}`);

test("the page's TypeScript compiles", () => {
  const text = PAGES.filter(existsSync)
    .map((page) => readFileSync(page, 'utf8'))
    .join('\n');
  const blocks = [...text.matchAll(/```ts\n(.*?)```/gs)].map(([, block]) => block);
  assert(blocks.length >= 1, 'the page has no TypeScript');
  for (const block of blocks) {
    writeFileSync('page.ts', block);
    assert.equal(compile('page.ts'), '', block);
  }
});
