/** A server with the module, on 127.0.0.1. It keeps no data. */
export interface Server {
  readonly port: number;
  /** For clients, as in `createClient({ url: server.url })`. */
  readonly url: string;
  /** The newest lines of the server's log. */
  readonly log: string;
  /** Removes all keys and locks. */
  flush(): Promise<void>;
  /** Ends the server and removes its files. A second call does nothing. */
  stop(): Promise<void>;
}

export interface ServerOptions {
  /** The server program, instead of the one that `findServer` finds. */
  server?: string;
  /** The port; a free one by default. */
  port?: number;
  /** More options, such as `["--maxmemory", "100mb"]`. */
  options?: readonly string[];
}

/** Starts a server with the module, which runs until its `stop()`. */
export function startServer(options?: ServerOptions): Promise<Server>;
/** The path of `named`, of `REDIS_SERVER`, or of the redis-server or valkey-server in the PATH. */
export function findServer(named?: string): string;
/** The module that this server can load: the file of `REDIS_LOCK_MODULE`, or one in this package. */
export function modulePath(server?: string): string;

/** There is no server to start, or no module for it. */
export class ServerNotFound extends Error {}
/** The server did not start, or refused a command; the message says why. */
export class ServerFailed extends Error {}
