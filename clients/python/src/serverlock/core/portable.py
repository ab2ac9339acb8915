"""The same lock where the module is not loaded: the scripts of portable/lock.lua, sent by hash.

Keys, values, replies and errors are those of the commands, for one key with one holder.
"""

import hashlib
from functools import cache
from importlib.resources import files

from .clock import now
from .request import Request
from .wire import ConnectionLost, Reply, ReplyError, Wire, Word

MARGIN_MS = 1000
RETENTION_MS = 60_000
# Ask for the eviction policy again after this time: a failover brings another server.
POLICY_COUNTS = 60.0

# Checks the lock, then runs one command of the user.
FENCED = """
local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
if not ends or tonumber(ends) - MARGIN <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
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


class Portable:
    fenced = FENCED

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire, self._timeout = wire, timeout
        self._is_loaded = False
        self._retention = -1
        self._asked = -POLICY_COUNTS

    async def acquire(self, request: Request, id_: str) -> Reply:
        await self._ask_policy(request)
        name = "lock_recover" if request.recover else "lock_acquire"
        return await self._call(request, name, *request.acquire(id_)[2:])

    async def cancel(self, request: Request, id_: str) -> None:
        """Gives back what this ID may have been granted. The same ID gets the same token."""
        reply = await self._call(request, "lock_acquire", b"PX", 1, b"ID", id_)
        if isinstance(reply, int):
            await self._call(request, "lock_release", reply)

    def extend(self, request: Request, token: int, lease_ms: int) -> tuple[Word, ...]:
        return self._words(request, "lock_extend", token, b"PX", lease_ms)

    def release(self, request: Request, token: int) -> tuple[Word, ...]:
        return self._words(request, "lock_release", token)

    def check(self, request: Request, token: int) -> tuple[Word, ...]:
        return self._words(request, "lock_check", token)

    def missed(self) -> None:
        """The server lost the script."""
        self._is_loaded = False

    def _words(self, request: Request, name: str, *args: Word) -> tuple[Word, ...]:
        by = ("EVALSHA", digest()) if self._is_loaded else ("EVAL", source())
        return (*by, 1, request.key, name, MARGIN_MS, self._retention, *args)

    async def _call(self, request: Request, name: str, *args: Word) -> Reply:
        try:
            reply = await self._wire.call(request.key, self._words(request, name, *args), self._timeout)
        except ReplyError as error:
            if error.code != "NOSCRIPT":
                raise
            self.missed()
            reply = await self._wire.call(request.key, self._words(request, name, *args), self._timeout)
        self._is_loaded = True
        return reply

    async def _ask_policy(self, request: Request) -> None:
        """A volatile policy may evict keys with an expiry, so locks get none; nor do they if INFO is not allowed."""
        if now() < self._asked + POLICY_COUNTS:
            return
        self._asked = now()
        try:
            reply = await self._wire.call(request.key, ("INFO", "memory"), self._timeout)
        except ReplyError:
            self._retention = -1
            return
        except ConnectionLost:
            self._asked = -POLICY_COUNTS
            raise
        text = reply.decode("ascii", "replace") if isinstance(reply, bytes) else str(reply)
        self._retention = -1 if "maxmemory_policy:volatile" in text or "maxmemory_policy" not in text else RETENTION_MS
