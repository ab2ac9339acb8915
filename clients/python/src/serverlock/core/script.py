"""Asks with the script in portable/lock.lua, where the module is not loaded. docs/PORTABLE.md describes its calls.

A call for one lock names the lock and its queue. `alone`: only the lock, where a queue cannot be used. Such attempts
poll, as do those for several keys.
"""

import hashlib
import random
from functools import cache
from importlib.resources import files

from .clock import Clock
from .request import Request
from .way import Answer, Call, No, Place, fenced, read
from .wire import ConnectionLost, Reply, ReplyError, Wire, Word, Words

MARGIN_MS = 1000
RETENTION_MS = 60_000
# Ask for the eviction policy again after this time, because a failover may bring in a different server.
POLICY_VALID_FOR = 60.0
POLL = (0.05, 0.15)

# Checks the lock, with one holder or several, then runs one command for the user.
FENCED = """
local value, time, token, ends = redis.pcall('GET', KEYS[1]), redis.call('TIME'), ('%016.0f'):format(ARGV[1]), nil
if type(value) == 'string' then
  ends = value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. token)
elseif value then
  local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #holders, 2 do
    if holders[i]:sub(1, 16) == token then ends = holders[i + 1] end
  end
end
if not ends or ends - MARGIN <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}
""".replace("MARGIN", str(MARGIN_MS / 1000))


@cache
def source() -> str:
    """The script: the function library without its first line."""
    text = files("serverlock").joinpath("lock.lua").read_text("ascii")
    return text.split("\n", 1)[1] if text.startswith("#!") else text


@cache
def digest() -> str:
    return hashlib.sha1(source().encode(), usedforsecurity=False).hexdigest()


class Lua:
    """The script: whether the server has it, and the arguments that all calls share."""

    def __init__(self, now: Clock, wire: Wire, timeout: float) -> None:
        self._now, self._wire, self._timeout = now, wire, timeout
        self.is_loaded = False
        self._retention = -1
        self._asked = -POLICY_VALID_FOR

    def call(self, keys: tuple[Word, ...], function: str, *args: Word) -> tuple[Word, ...]:
        by = ("EVALSHA", digest()) if self.is_loaded else ("EVAL", source())
        return (*by, len(keys), *keys, function, MARGIN_MS, self._retention, *args)

    async def ask_policy(self, key: bytes) -> None:
        """A volatile policy may evict keys with an expiry, so locks get none then, nor if INFO is not allowed."""
        if self._now() < self._asked + POLICY_VALID_FOR:
            return
        self._asked = self._now()
        try:
            reply = await self._wire.call(key, ("INFO", "memory"), self._timeout)
        except ReplyError:
            self._retention = -1
            return
        except ConnectionLost:
            self._asked = -POLICY_VALID_FOR
            raise
        text = reply.decode("ascii", "replace") if isinstance(reply, bytes) else str(reply)
        self._retention = -1 if "maxmemory_policy:volatile" in text or "maxmemory_policy" not in text else RETENTION_MS


class Script:
    is_module = False

    def __init__(self, lua: Lua, *, alone: bool = False) -> None:
        self._lua, self._is_alone = lua, alone

    def queues(self, request: Request) -> bool:
        return not self._is_alone and not request.many and request.queues[0] is not None

    async def prepare(self, key: bytes) -> None:
        await self._lua.ask_policy(key)

    def acquire(self, request: Request, id_: str, wait_ms: int, channel: str | None) -> Words:
        function = "lock_acquire_all" if request.many else "lock_recover" if request.recover else "lock_acquire"
        waits = channel is not None and self.queues(request)
        return self._call(request, function, *request.options(id_, wait_ms if waits else 0, channel))

    def read(self, reply: Reply, sent: float, *, waits: bool) -> Answer:
        if reply is None:
            return Place(random.uniform(*POLL), is_queued=False) if waits else No.REFUSED
        if isinstance(reply, list) and len(reply) == 2 and reply[0] in (b"WAITING", "WAITING"):
            return Place(reply[1] / 1000)
        return read(reply, sent, True)

    async def cancel(self, request: Request, id_: str, channel: str, call: Call) -> None:
        if self.queues(request):
            await call(self._call(request, "lock_cancel", b"ID", id_, b"NOTIFY", channel, *request.kind))
            return
        # The same ID gets the same token.
        function = "lock_acquire_all" if request.many else "lock_acquire"
        token = await call(self._call(request, function, b"PX", 1, b"ID", id_))
        if isinstance(token, int):
            await call(self.release(request, token))

    def extend(self, request: Request, token: int, lease_ms: int) -> Words:
        return self._call(request, "lock_extend_all" if request.many else "lock_extend", token, b"PX", lease_ms)

    def release(self, request: Request, token: int, result: bytes | None = None) -> Words:
        return self._call(request, "lock_release_all" if request.many else "lock_release", token)

    def check(self, request: Request, token: int, key: bytes) -> Words:
        return self._lua.call(self._keys(key, request.queues[request.keys.index(key)]), "lock_check", token)

    def info(self, request: Request) -> Words:
        return self._call(request, "lock_info")

    def fenced(self, request: Request, token: int, words: Words) -> Words:
        return fenced(FENCED, request, token, words)

    def _call(self, request: Request, function: str, *args: Word) -> tuple[Word, ...]:
        if request.many:
            queues = tuple(queue for queue in request.queues if queue is not None)
            return self._lua.call((*request.keys, *queues), function, *args)
        return self._lua.call(self._keys(request.key, request.queues[0]), function, *args)

    def _keys(self, key: bytes, queue: bytes | None) -> tuple[Word, ...]:
        return (key,) if self._is_alone or queue is None else (key, queue)
