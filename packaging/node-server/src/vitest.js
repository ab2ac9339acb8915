// Vitest's `globalSetup`: one server for all tests, whose URL is in SERVERLOCK_URL.
import { startServer } from './server.js';

export default async function setup() {
  const server = await startServer();
  process.env.SERVERLOCK_URL = server.url;
  return () => server.stop();
}
