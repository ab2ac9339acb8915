"""Results without the module: the holder stores its result at a key beside the lock's queue, before it releases."""

from dataclasses import dataclass

from .request import Request, result_of
from .wire import ConnectionLost, ReplyError, Wire

LONGEST = 65536
NONE_YET = 0


class Resolved(Exception):
    """An attempt ended without the lock: its holder released it with a result."""

    def __init__(self, value: bytes) -> None:
        super().__init__("the holder released the lock with a result")
        self.value = value


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored result, and the token of the grant in which it was computed."""

    token: int
    value: bytes


NOTHING = Stored(NONE_YET, b"")


async def stored(wire: Wire, request: Request, timeout: float) -> Stored | None:
    """What is stored now; NOTHING if that is nothing. None: this user may not ask, or there is no such key."""
    name = result_of(request.key)
    if name is None:
        return None
    try:
        reply = await wire.call(request.key, ("GET", name), timeout)
    except (ReplyError, ConnectionLost):
        return None
    token, space, value = (reply.encode() if isinstance(reply, str) else reply or b"").partition(b" ")
    return Stored(int(token), value) if space and token.isdigit() else NOTHING


async def store(wire: Wire, request: Request, token: int, value: bytes, timeout: float) -> None:
    name = result_of(request.key)
    if name is None or len(value) > LONGEST:
        return
    try:
        await wire.call(request.key, ("SET", name, b"%d %b" % (token, value), "PX", request.lease_ms), timeout)
    except (ReplyError, ConnectionLost):
        pass  # the next one in the queue computes


def is_too_long(error: ReplyError) -> bool:
    return str(error).startswith("ERR result is longer")
