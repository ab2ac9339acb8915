// The drop-ins have the types that the frameworks publish, and the page's TypeScript compiles.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { compile } from './compiler.mjs';

/** Where the sections about Node are. */
const PAGES = ['docs/FRAMEWORKS.md', 'docs/frameworks-node.md'].map((name) => `${process.env.REPOSITORY}/${name}`);

test('the uses of each drop-in compile, and so does the page', () => {
  const pages = PAGES.filter(existsSync).map((page) => readFileSync(page, 'utf8'));
  const blocks = [...pages.join('\n').matchAll(/```ts\n(.*?)```/gs)].map(([, block]) => block);
  for (const name of ['nestjs', 'node-cron', 'opentelemetry'])
    assert(
      blocks.some((block) => block.includes(`'serverlock/${name}'`)),
      name,
    );
  for (const [at, block] of blocks.entries()) writeFileSync(`page-${at}.types.ts`, block);
  const files = readdirSync('.').filter((name) => name.endsWith('.types.ts'));
  assert.equal(compile(files), '');
});
