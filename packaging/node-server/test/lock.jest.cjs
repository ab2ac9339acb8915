const { createConnection } = require('node:net');

test('the server of the global setup has the module', async () => {
  const { hostname, port } = new URL(process.env.SERVERLOCK_URL);
  const reply = await new Promise((done, failed) => {
    const connection = createConnection(Number(port), hostname, () => connection.write('LOCK.HELP\r\n'));
    connection.once('error', failed);
    connection.once('data', (data) => {
      connection.destroy();
      done(data.toString());
    });
  });
  expect(reply).toMatch(/^\*/);
});
