"""The one line on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message.

It is for processes that do one thing at a time. From the second attempt that waits at the same time on, all attempts
wait by NOTIFY. While the line is open, calls keep to one connection of the pool, so that there are never more than
three in all; a crowd of calls ends it too.
"""

import threading
from typing import TYPE_CHECKING

from .clock import now
from .seats import Seats
from .wire import Line

if TYPE_CHECKING:
    from .engine import Engine


class Solo:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._line: Line | None = None
        self._seat = Seats(1)
        self._is_used = False  # calls are narrowed for it
        self.is_over = False  # a second attempt has waited

    @property
    def is_ready(self) -> bool:
        """Whether an attempt may begin on it: the line is open, and nobody waits."""
        return self._line is not None and self._line.is_open and not self._seat.in_use

    def enter(self, waiter: object) -> bool:
        """Whether this attempt waits alone. If so, the line is its own until `leave`."""
        with self._mutex:
            if self.is_over or not self._seat.take(waiter):
                return False
            if not self._is_used and not self._engine.wire.narrow(self._crowded):
                self._seat.leave(waiter)
                return False
            self._is_used = True
            return True

    async def line(self, key: bytes) -> Line:
        line = self._line
        if line is None or not line.is_open:
            line = self._line = await self._engine.wire.line(key, self._engine.timeout)
        return line

    async def leave(self, waiter: object) -> None:
        self._seat.leave(waiter)
        if self.is_over:
            await self.end()

    def _crowded(self) -> None:
        self._engine.timer.owe(now(), self.end)

    async def close(self) -> None:
        """The manager is closed: ends the wait as well."""
        self.is_over = True
        line = self._line
        if line is not None:
            await line.close()
        await self.end()

    async def end(self) -> None:
        """Others wait or call. An attempt that blocks on the line does so to the end of its piece."""
        with self._mutex:
            self.is_over = True
            if self._seat.in_use:
                return
            (line, self._line), was_used, self._is_used = (self._line, None), self._is_used, False
        if line is not None:
            await line.close()
        if was_used:
            self._engine.wire.widen()
