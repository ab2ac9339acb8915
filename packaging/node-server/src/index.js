// A Redis or Valkey server with the redis-lock module, for tests and laptops. The package contains the module; the
// server is the one that is installed.
export { findServer, modulePath, ServerNotFound } from './programs.js';
export { ServerFailed, startServer } from './server.js';
