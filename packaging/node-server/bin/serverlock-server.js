#!/usr/bin/env node
// `npx serverlock-server`: a server with the module, in the foreground.
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { findServer, freePort, modulePath, serverArguments } from '../src/programs.js';

const HELP = `Usage: serverlock-server [--port N] [--server PROGRAM] [--module] [SERVER OPTION...]

Starts the installed redis-server or valkey-server with the redis-lock module, in the foreground.

  --port N          the port; a free one by default
  --server PROGRAM  the server program, instead of the one in the PATH
  --module          only print the module's path

All other options are the server's, such as --maxmemory 100mb.`;

const options = process.argv.slice(2);
/** Removes an option and its value from the server's options. */
function take(name) {
  const at = options.indexOf(name);
  return at < 0 ? undefined : options.splice(at, 2)[1];
}

if (options.includes('--help')) {
  console.log(HELP);
} else {
  try {
    const program = findServer(take('--server'));
    const module = modulePath(program);
    if (options.includes('--module')) {
      console.log(module);
    } else {
      const port = take('--port') ?? (await freePort());
      console.log(`redis://127.0.0.1:${port}`);
      const server = spawn(program, serverArguments({ module, port, folder: tmpdir(), options }), { stdio: 'inherit' });
      // A terminal sends SIGINT to the server too, which a second one would end at once.
      for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => server.kill());
      server.on('exit', (code) => process.exit(code ?? 1));
    }
  } catch (error) {
    console.error(`serverlock-server: ${error.message}`);
    process.exit(1);
  }
}
