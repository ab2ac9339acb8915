// Waits for a lock with node-redis as it comes: its time-outs and retries are not touched.
//
// node_redis.js PORT KEY OWNER [ID]
'use strict';

const { createClient } = require('redis');

const [port, key, owner, id] = process.argv.slice(2);

async function main() {
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  client.on('error', () => {}); // without a listener it would end the process
  await client.connect();
  const command = ['LOCK.ACQUIRE', key, 'EX', '60', 'WAIT', '20000', 'OWNER', owner];
  const token = await client.sendCommand(id ? [...command, 'ID', id] : command);
  console.log('token', token);
  if (token !== null) {
    console.log('released', await client.sendCommand(['LOCK.RELEASE', key, String(token)]));
  }
  client.destroy();
}

main().catch((error) => {
  console.log('error', error.name, error.message);
  process.exit();
});
