// Waits for a lock with a Node client and its default time-outs and retries.
//
// as_they_come.js CLIENT PORT KEY OWNER [ID]
'use strict';

const [name, port, key, owner, id] = process.argv.slice(2);

// Each returns a function that sends a command, and one that closes the client.
const clients = {
  async 'node-redis'() {
    const client = require('redis').createClient({ url: `redis://127.0.0.1:${port}` });
    client.on('error', () => {}); // without a listener, an error would end the process
    await client.connect();
    return [(...command) => client.sendCommand(command), () => client.destroy()];
  },
  async ioredis() {
    const client = new (require('ioredis').Redis)(Number(port));
    return [(...command) => client.call(...command), () => client.disconnect()];
  },
};

async function main() {
  const [send, close] = await clients[name]();
  const command = ['LOCK.ACQUIRE', key, 'EX', '60', 'WAIT', '20000', 'OWNER', owner];
  const token = await send(...command, ...(id ? ['ID', id] : []));
  console.log('token', token);
  if (token !== null) console.log('released', await send('LOCK.RELEASE', key, String(token)));
  close();
}

main().catch((error) => {
  console.log('error', error.name, error.message);
  process.exit();
});
