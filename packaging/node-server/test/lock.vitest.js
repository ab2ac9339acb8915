import { expect, test } from 'vitest';
import { call } from './net.js';

test('the server of the global setup has the module', async () => {
  expect(await call(process.env.SERVERLOCK_URL, 'LOCK.HELP')).toMatch(/^\*/);
});
