/** The module's commands. */

import type { Form } from './form.js';

export const COMMANDS: Form = {
  acquire: (request, id, wait, channel, send) => send(request.acquire(id, wait, channel)),
  async cancel(request, id, _, send) {
    for (const key of request.keys) await send(['LOCK.CANCEL', key, id]);
  },
  extend: (request, token, lease, send) => send(request.extend(token, lease)),
  release: (request, token, send, result) => send(request.release(token, result)),
  check: (request, token, send) => Promise.all(request.keys.map((key) => send(['LOCK.CHECK', key, token]))),
  info: (request, send) => send(['LOCK.INFO', request.key]),
  fenced:
    "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end " +
    'return {redis.call(unpack(ARGV, 2))}',
};
