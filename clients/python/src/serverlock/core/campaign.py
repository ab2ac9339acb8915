"""Leader election: campaigns for a lock until stopped. The leader holds the lock for as long as it lives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from ..errors import LockError
from .commands import fields_of, text_of
from .engine import Engine, H
from .request import Request
from .wire import ConnectionLost, ReplyError

PIECE = 60.0
PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Leadership:
    """The current leader; token and owner are None while there is no leader."""

    token: int | None
    owner: str | None


NOBODY = Leadership(None, None)


class Campaign(Generic[H]):
    """Runs until `stop`. Calls `elected` and `deposed` alternately."""

    def __init__(
        self,
        engine: Engine,
        manager: object,
        request: Request,
        kind: type[H],
        elected: Callable[[int], object],
        deposed: Callable[[int], object],
    ) -> None:
        self._engine, self._manager, self._request, self._kind = engine, manager, request, kind
        self._elected, self._deposed = elected, deposed
        self._flag = engine.runtime.flag()
        self._is_stopped = self._resigns = False
        self.hold: H | None = None

    def stop(self) -> None:
        self._is_stopped = True
        self._flag.set()

    def resign(self) -> None:
        self._resigns = True
        self._flag.set()

    def wake(self) -> None:
        self._flag.set()

    async def run(self) -> None:
        while not self._is_stopped and not self._engine.is_closed:
            try:
                hold = await self._engine.acquire(self._manager, self._request, self._kind)
            except LockError as error:
                if not isinstance(error, TimeoutError):
                    self._engine.log.debug("campaigning failed; trying again: %s", error)
                await self._flag.wait(PAUSE if self._request.wait == 0 else min(PAUSE, self._request.lease / 3))
                continue
            self.hold = hold
            self._resigns = False
            self._flag.clear()
            if not self._is_stopped:
                self._elected(hold.token)
                while hold.is_held and not self._is_stopped and not self._resigns:
                    await self._flag.wait(max(0.01, hold.left()))
                    self._flag.clear()
            # Before the release: `deposed` must come before the next leader is elected.
            self._deposed(hold.token)
            self.hold = None
            if hold._ended is None:
                try:
                    await self._engine.release(hold)
                except LockError as error:
                    self._engine.log.warning("resigning: %s", error)
            if self._resigns and not self._is_stopped:
                await self._engine.runtime.sleep(min(PAUSE, self._request.lease / 3))


async def leader_of(engine: Engine, key: bytes) -> Leadership:
    """The leader that LOCK.INFO reports."""
    try:
        reply = await engine.wire.call(key, ("LOCK.INFO", key), engine.timeout)
    except (ReplyError, ConnectionLost):
        return NOBODY
    fields = fields_of(reply)
    if text_of(fields.get("state")) != "held" or not fields.get("token"):
        return NOBODY
    owner = fields.get("owner")
    return Leadership(int(fields["token"]), None if owner is None else text_of(owner))
