"""Whether enough replicas have a grant or wrote it to disk: WAIT and WAITAOF on the grant's connection."""

from ..errors import LockUnavailable
from . import kinds
from .request import Request
from .sessions import Session
from .wire import Connection, ConnectionLost, Reply, ReplyError


async def confirm(connection: Connection | Session | None, request: Request, timeout: float) -> None:
    """Raises LockUnavailable unless enough replicas and disks have the grant.

    timeout: for the reply, after `replicas_within`.
    """
    if connection is None:
        raise kinds.typed(ConnectionLost(ConnectionError("the connection that got the grant has closed")), request.name)
    within, timeout = round(request.replicas_within * 1000), request.replicas_within + timeout
    try:
        if request.replicas:
            have = await connection.call(("WAIT", request.replicas, within), timeout)
            _demand(request, "replicas", have, request.replicas)
        if request.fsync:
            local, remote = await connection.call(("WAITAOF", 1, request.replicas, within), timeout)
            _demand(request, "servers that wrote it to disk", local + remote, 1 + request.replicas)
    except (ReplyError, ConnectionLost) as error:
        raise kinds.typed(error, request.name) from error


def _demand(request: Request, what: str, have: Reply, want: int) -> None:
    if not isinstance(have, int) or have < want:
        raise LockUnavailable(request.name, f"{have} of {want} {what} have the grant; the lock was released")
