// Waits for a lock with ioredis as it comes: its time-outs and retries are not touched.
//
// io_redis.js PORT KEY OWNER [ID]
'use strict';

const { Redis } = require('ioredis');

const [port, key, owner, id] = process.argv.slice(2);

async function main() {
  const client = new Redis(Number(port));
  const command = [key, 'EX', '60', 'WAIT', '20000', 'OWNER', owner];
  const token = await client.call('LOCK.ACQUIRE', ...(id ? [...command, 'ID', id] : command));
  console.log('token', token);
  if (token !== null) {
    console.log('released', await client.call('LOCK.RELEASE', key, String(token)));
  }
  client.disconnect();
}

main().catch((error) => {
  console.log('error', error.name, error.message);
  process.exit();
});
