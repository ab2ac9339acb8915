// The body of a worker's job: it reports its beginning and its end. `hang` on stdin: the next one never ends.

import { createInterface } from 'node:readline';

export const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);

let hangs = false;
createInterface(process.stdin).on('line', () => {
  hangs = true;
});

export async function work(event) {
  const never = hangs;
  say({ ...event, hangs: never, at: Date.now() });
  if (never) await new Promise(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 200));
  say({ end: event.begin, at: Date.now() });
}
