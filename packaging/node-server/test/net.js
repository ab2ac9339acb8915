// What the tests need of a client: the first line of the reply to a command.
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

export function call(url, ...words) {
  return new Promise((done, failed) => {
    const { hostname, port } = new URL(url);
    const connection = connect(Number(port), hostname, () => connection.write(`${words.join(' ')}\r\n`));
    connection.once('end', () => failed(new Error('the connection ended')));
    // readline passes on the errors of its input.
    const lines = createInterface({ input: connection }).once('error', failed);
    lines.once('line', (line) => {
      connection.destroy();
      done(line);
    });
  });
}
