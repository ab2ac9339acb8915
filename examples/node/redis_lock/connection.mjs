// A connection of its own for one lock, made as that of the client is: a waiting command would keep up all others.
import { LockError, isBroken } from './attempt.mjs';

// What the application has set for its own connection, and what would stand in the way here.
const OWN = { clientSideCache: undefined, emitInvalidate: false, maintNotifications: 'disabled', pingInterval: 0 };

/** Connects once, carries one command at a time, and is closed for good by an error or a reply that does not come. */
class Connection {
  #client;
  #connected;
  #failed;
  #fail = () => {};

  /** `onBroken` is called with the error when it breaks by itself, at whatever time. */
  constructor(client, timeoutMs, onBroken) {
    const socket = { ...client.options.socket, connectTimeout: timeoutMs, socketTimeout: undefined };
    socket.reconnectStrategy = false;
    this.#client = client.duplicate({ ...OWN, commandOptions: {}, socket });
    this.#client.on('error', (error) => {
      if (!this.#failed) onBroken(error);
      this.close(error);
    });
    this.#connected = this.#client.connect();
    this.#connected.catch(() => {}); // told by the command that is under way
  }

  /** The reply to a command. */
  call(words, timeoutMs) {
    return new Promise((resolve, reject) => {
      if (this.#failed) return reject(this.#failed);
      this.#fail = reject;
      const late = () => this.close(new DOMException(`no reply within ${Math.round(timeoutMs)} ms`, 'TimeoutError'));
      const timer = setTimeout(late, timeoutMs);
      const reply = this.#connected.then(() => this.#client.sendCommand(words));
      reply.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  /** Ends it, and what is under way. */
  close(error = new Error('the connection is closed')) {
    if (this.#failed) return;
    this.#failed = error;
    this.#fail(error);
    const end = () => this.#client.destroy();
    this.#connected.then(end, end); // it may be connecting: that cannot be ended
    end();
  }
}

/** Carries the commands of an attempt, over one connection after the other. */
export class Channel {
  #connect;
  #connection;
  #attempt;
  #timeoutMs;

  constructor(client, attempt, timeoutMs, onBroken) {
    this.#connect = () => new Connection(client, timeoutMs, onBroken);
    this.#attempt = attempt;
    this.#timeoutMs = timeoutMs;
  }

  /** The reply to LOCK.<name>; for ACQUIRE, after a wait of `pieceMs` at most. */
  async exchange(name, pieceMs = 0, patienceMs = this.#timeoutMs) {
    this.#connection ??= this.#connect();
    try {
      const reply = await this.#connection.call(this.#attempt.command(name, pieceMs), patienceMs);
      return this.#attempt.read(name, reply);
    } catch (error) {
      if (isBroken(error) || error instanceof LockError) throw error;
      this.#attempt.fallBack(name, error);
      return this.exchange(name, pieceMs, patienceMs);
    }
  }

  /** Ends what is under way; the next command connects anew. */
  disconnect() {
    this.#connection?.close();
    this.#connection = undefined;
  }
}
