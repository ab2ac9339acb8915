"""Locks that pass from one process to another by their token: a queued message takes the lock along.

Nobody renews such a lock on its way, so its lease must last for as long as it may travel.
"""

from ..errors import LockError
from . import kinds
from .attempt import Attempt
from .engine import Engine, H
from .hold import Grant
from .request import Request
from .wire import ConnectionLost, ReplyError


async def grant(engine: Engine, request: Request) -> Grant:
    """Gets the lock, and leaves it to its lease. Raises LockRefused or another LockError."""
    attempt, granted = Attempt(engine.resources, request), None
    try:
        granted = await attempt.run()
        return granted  # noqa: RET504, an interrupt may come before it
    except LockError:
        raise
    except (ReplyError, ConnectionLost) as error:
        raise kinds.typed(error, request.name) from error
    except BaseException as error:
        if granted is not None:  # the caller was interrupted before it got the grant
            await attempt.abandon(error)
        raise


async def resume(engine: Engine, manager: object, request: Request, token: int, kind: type[H]) -> H | None:
    """The hold of a lock that was granted elsewhere; its lease begins anew. None: the grant has ended."""
    sent = engine.now()
    granted = Grant(token, sent, None, engine.module.is_missing)
    try:
        reply = await engine._send(request, granted, lambda way: way.extend(request, token, request.lease_ms))
    except (ReplyError, ConnectionLost) as error:
        raise kinds.typed(error, request.name) from error
    way = engine.module.way_of(request, granted)
    return engine._held(kind(engine, manager, request, granted, sent), granted, way) if reply == 1 else None


def drop(engine: Engine, request: Request, granted: Grant) -> None:
    """Releases the lock in the background."""
    engine._debts.owe(engine.now() + request.lease, lambda: engine._settle(request, granted))
