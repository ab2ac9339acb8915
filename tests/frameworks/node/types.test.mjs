// The drop-ins have the types that the frameworks publish, and the page's TypeScript compiles.

import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { compile } from './compiler.mjs';
import { blocksOfPage } from './support.mjs';

test('the uses of each drop-in compile, and so does the page', () => {
  const blocks = blocksOfPage('ts').filter((block) => block.includes("'serverlock"));
  for (const name of ['nestjs', 'node-cron', 'opentelemetry'])
    assert(
      blocks.some((block) => block.includes(`'serverlock/${name}'`)),
      name,
    );
  for (const [at, block] of blocks.entries()) writeFileSync(`page-${at}.types.ts`, block);
  assert.equal(compile(readdirSync('.').filter((name) => name.endsWith('.types.ts'))), '');
});
