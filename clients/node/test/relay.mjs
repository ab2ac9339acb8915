// A relay between client and server that answers commands itself or swallows everything, as a test demands.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

export class Relay {
  #server;
  #pairs = new Set();
  /** For each client command: returns the bytes to answer with instead, or undefined to pass it on. */
  answer = () => undefined;
  port;
  accepted = 0;

  static async to(target, atEnd) {
    const relay = new Relay();
    relay.#server = createServer((client) => relay.#accept(client, target)).listen(0, '127.0.0.1');
    await once(relay.#server, 'listening');
    relay.port = relay.#server.address().port;
    atEnd(() => {
      relay.#server.close();
      for (const { client, server } of relay.#pairs) {
        client.destroy();
        server.destroy();
      }
    });
    return relay;
  }

  /** From now on, the open connections swallow everything in both directions, and stay open. */
  halfOpen() {
    for (const pair of this.#pairs) pair.isSilent = true;
    return this.#pairs.size;
  }

  /** Closes the open connections. */
  drop() {
    for (const { client } of this.#pairs) client.destroy();
  }

  /** Sends these bytes to all clients. */
  say(bytes) {
    for (const { client } of this.#pairs) client.write(bytes);
  }

  #accept(client, target) {
    this.accepted += 1;
    const server = connect(target, '127.0.0.1');
    const pair = { client, server, isSilent: false };
    this.#pairs.add(pair);
    for (const [one, other] of [
      [client, server],
      [server, client],
    ]) {
      one.on('error', () => undefined);
      one.on('close', () => {
        this.#pairs.delete(pair);
        other.destroy();
      });
    }
    client.on('data', (data) => {
      if (pair.isSilent) return;
      const instead = this.answer(data.toString('latin1'));
      if (instead === undefined) server.write(data);
      else client.write(instead);
    });
    server.on('data', (data) => pair.isSilent || client.write(data));
  }
}
