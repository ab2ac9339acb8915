"""Waits by blocking, where the module is loaded: in pieces, because connections are few, and so that a lost reply is
noticed after one piece."""

from . import kinds
from .asking import Asker
from .hold import Grant
from .waiting import SLACK
from .way import No
from .wire import ConnectionLost, ReplyError

PIECE = 5.0
LONE_PIECE = 2.0
SHORT_PIECE = 1.0


async def wait_alone(asker: Asker) -> Grant | None:
    """Waits as the manager's only wait. None: there are others, or the module is gone."""
    resources, request = asker.resources, asker.request
    if not request.wait or request.needs_connection or not resources.notifies or resources.module.is_missing:
        return None
    if not resources.blocking.enter(asker):
        return None
    try:
        asker.is_alone = True
        return await wait_in_pieces(asker)
    finally:
        asker.is_alone = False
        await resources.blocking.leave(asker)


async def wait_in_pieces(asker: Asker) -> Grant | None:
    """None: others are waiting too, or the module is gone."""
    resources, request = asker.resources, asker.request
    while asker.left() > 0 and not (asker.is_alone and resources.blocking.is_over):
        asker.uses_connection = True
        try:
            if asker.own_connection is None:
                await asker.take_connection()
            piece = max(0.001, min(asker.left(), _piece(asker)))
            began = asker.now()
            answer = await asker.ask(resources.module.commands, round(piece * 1000), None, piece + resources.timeout)
        except ConnectionLost as error:
            await asker.pause_after(error)
            continue
        finally:
            asker.uses_connection = request.needs_connection
            if not asker.uses_connection:
                await asker.give_back_connection()
        if answer is No.NOT_BLOCKED:
            return None
        asker.waited = asker.is_known = True
        if isinstance(answer, Grant):
            if await _count_anew(asker, answer):
                return answer
        elif asker.now() < began + piece - SLACK and asker.left() > SLACK:
            asker.is_known = False  # LOCK.CANCEL, or CLIENT UNBLOCK
            raise kinds.refused(request.name)
    if asker.left() <= 0:
        raise asker.timed_out()
    return None


def _piece(asker: Asker) -> float:
    if asker.is_alone:
        return LONE_PIECE
    return SHORT_PIECE if asker.resources.connections.has_waiters else PIECE


async def _count_anew(asker: Asker, grant: Grant) -> bool:
    """The grant may be as old as the call. If the call took a long time, an EXTEND restarts the lease."""
    request, resources = asker.request, asker.resources
    while asker.now() >= grant.sent + request.lease / 3:
        sent = asker.now()
        try:
            words = request.extend(grant.token, request.lease_ms)
            reply = await resources.wire.call(request.key, words, resources.timeout)
        except (ReplyError, ConnectionLost) as error:
            await asker.pause_after(error, is_own=False)
            continue
        grant.sent = sent
        return bool(reply)
    return True
