// Jest's `globalTeardown`: ends the server that jest-setup.js started.
export default async function teardown() {
  await globalThis[Symbol.for('serverlock-server')]?.stop();
}
