"""A few lines for calls that need a connection to themselves: blocking waits, and WAIT behind a grant.

Callers take turns. A line that is idle is kept for the next one.
"""

import threading
from typing import TYPE_CHECKING

from .seats import Gate
from .wire import Line

if TYPE_CHECKING:
    from .engine import Engine

SIZE = 8


class Lines:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._gate = Gate(engine.runtime, SIZE)
        self._idle: list[Line] = []

    @property
    def is_crowded(self) -> bool:
        return self._gate.is_crowded

    @property
    def in_use(self) -> int:
        return self._gate.in_use

    async def take(self, taker: object, key: bytes, timeout: float) -> Line | None:
        """A line; None when none came free in time. Raises Broken."""
        if not await self._gate.enter(taker, timeout):
            return None
        # In a cluster each key has its own server: a line kept for another one would be of no use.
        while not self._engine.wire.is_cluster:
            with self._mutex:
                line = self._idle.pop() if self._idle else None
            if line is None:
                break
            if line.is_open:
                return line
        try:
            return await self._engine.wire.line(key, self._engine.timeout)
        except BaseException:
            self._gate.leave(taker)
            raise

    async def give_back(self, taker: object, line: Line) -> None:
        self._gate.leave(taker)
        if line.is_open and not self._engine.wire.is_cluster and not self._engine.is_closed:
            with self._mutex:
                self._idle.append(line)
        else:
            await line.close()

    async def close(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for line in idle:
            await line.close()
